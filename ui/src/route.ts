// The page and its settings in the address, so that a link and a reload show the same. The part after
// `#` is used because the API owns the paths.

import { useLayoutEffect, useState } from "preact/hooks";

export interface Route {
  page: string;
  query: URLSearchParams;
}

export function parseRoute(hash: string): Route {
  const [page = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { page: page || "live", query: new URLSearchParams(query) };
}

let known = { hash: "", route: parseRoute("") };

/** The same one until the address changes, because each chart asks for it each second. It is only read. */
export function currentRoute(): Route {
  const { hash } = window.location;
  if (hash !== known.hash) known = { hash, route: parseRoute(hash) };
  return known.route;
}

export function useRoute(): Route {
  const [route, setRoute] = useState(currentRoute);
  // An effect after the paint would miss what is typed right after it.
  useLayoutEffect(() => {
    const listen = (): void => setRoute(currentRoute());
    window.addEventListener("hashchange", listen);
    return () => window.removeEventListener("hashchange", listen);
  }, []);
  return route;
}

export function go(page: string): void {
  window.location.hash = `#/${page}`;
}

/** Sets one setting of the page; null removes it. It adds no step to the history. */
export function setQuery(name: string, value: string | null): void {
  const { page, query } = parseRoute(window.location.hash);
  if (value === null) query.delete(name);
  else query.set(name, value);
  const text = query.toString();
  window.history.replaceState(null, "", `#/${page}${text ? `?${text}` : ""}`);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}
