import { defineAdapter, type Adapter } from "@iop/agent-runtime";
import { readCredential } from "./credential.ts";
import { OpenAiCompatProvider } from "./open-ai-compat-provider.ts";
import { ProviderConnections } from "./provider-connections.ts";
import { ProviderRoutes } from "./provider-routes.ts";

/**
 * Kind `openai-compat`: any server that speaks the OpenAI API, used through raw tunnels for the operations
 * that its profile lists.
 *
 * `create` needs `endpoint` (an http or https URL, a base path is allowed) and `profile`. Where `authEnv` is
 * set, the profile must say how to present the credential.
 * @throws RuntimeError from `create`: `invalid_config`, naming the key; `provider_unavailable` where the
 * variable of `authEnv` is unset, not allowed, or not fit for a header.
 */
export function openAiCompat(): Adapter {
  return defineAdapter({
    kind: "openai-compat",
    create(config, context) {
      const routes = new ProviderRoutes(config);
      const credential = readCredential(config, context);
      return new OpenAiCompatProvider({
        config,
        routes,
        credential,
        connections: new ProviderConnections({ origin: routes.origin }),
      });
    },
  });
}
