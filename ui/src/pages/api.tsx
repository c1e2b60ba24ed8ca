// The API of this server: every operation of its OpenAPI document, without anything from another host.

import type { JSX } from "preact";
import * as api from "../api";
import { visible } from "../format";
import { usePolled } from "../parts/polled";
import { setQuery, useRoute } from "../route";

const POLL_S = 3600;
const METHODS = ["get", "post", "put", "patch", "delete"] as const;

interface Listed {
  method: string;
  path: string;
  operation: api.Operation;
}

function operationsOf(document: api.ApiDocument): Listed[] {
  return Object.entries(document.paths).flatMap(([path, item]) =>
    METHODS.flatMap((method) => {
      const operation = item[method];
      return operation ? [{ method, path, operation }] : [];
    }),
  );
}

export default function ApiPage(): JSX.Element {
  const { value, problem } = usePolled("openapi", POLL_S, api.fetchApiDocument);
  const filter = (useRoute().query.get("filter") ?? "").toLowerCase();
  if (!value) return <p class={problem ? "empty problem" : "empty"}>{problem ?? "Loading…"}</p>;
  const listed = operationsOf(value).filter(({ path, operation }) => `${path} ${operation.summary ?? ""}`.toLowerCase().includes(filter));
  return (
    <section class="card" aria-labelledby="api-title">
      <header>
        <h2 id="api-title">{visible(value.info.title)}</h2>
        <a href="/openapi.json">openapi.json</a>
        <div class="right">
          <input
            id="filter"
            class="field"
            type="search"
            placeholder="Filter ( / )"
            aria-label="Filter operations"
            value={filter}
            onInput={(event) => setQuery("filter", event.currentTarget.value || null)}
          />
        </div>
      </header>
      <div class="operations">
        {listed.map((entry) => (
          <Operation key={`${entry.method} ${entry.path}`} entry={entry} document={value} />
        ))}
      </div>
    </section>
  );
}

function Operation({ entry, document }: { entry: Listed; document: api.ApiDocument }): JSX.Element {
  const { method, path, operation } = entry;
  const body = operation.requestBody?.content?.["application/json"]?.schema;
  return (
    <details>
      <summary>
        <code class="method">{method.toUpperCase()}</code> <code>{visible(path)}</code>{" "}
        <span class="soft">{visible(operation.summary ?? "")}</span>
      </summary>
      {operation.description ? <p>{visible(operation.description)}</p> : null}
      {(operation.parameters ?? []).map((parameter) => (
        <p key={parameter.name}>
          <code>{visible(parameter.name)}</code> in the {parameter.in}
          {parameter.required ? ", required" : ""}
          {parameter.description ? `: ${visible(parameter.description)}` : ""}
        </p>
      ))}
      {body ? <Schema title="Body" schema={body} document={document} /> : null}
      {Object.entries(operation.responses).map(([status, response]) => (
        <Answer key={status} status={status} response={response} document={document} />
      ))}
    </details>
  );
}

function Answer({ status, response, document }: { status: string; response: api.Answer; document: api.ApiDocument }): JSX.Element {
  const found = response.$ref ? document.components.responses[response.$ref.split("/").at(-1) ?? ""] : response;
  const schema = found?.content?.["application/json"]?.schema;
  // Errors all have one form.
  if (!schema || Number(status) >= 400)
    return (
      <p>
        <code>{status}</code> {visible(found?.description ?? "")}
      </p>
    );
  return <Schema title={`${status} ${found?.description ?? ""}`} schema={schema} document={document} />;
}

function Schema({ title, schema, document }: { title: string; schema: api.Schema; document: api.ApiDocument }): JSX.Element {
  const name = typeof schema.$ref === "string" ? (schema.$ref.split("/").at(-1) ?? "") : null;
  const shown = name === null ? schema : document.components.schemas[name];
  return (
    <>
      <p>
        {visible(title)} {name === null ? null : <code>{visible(name)}</code>}
      </p>
      <pre>{JSON.stringify(shown, null, 1)}</pre>
    </>
  );
}
