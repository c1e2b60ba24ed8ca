// The database nodes that failed tries of CQL statements were sent to, and with which consistency level, from the
// ends of their messages: `… (node 10.0.0.2, data centre dc1, consistency QUORUM)`. squall-cql writes them; other
// messages have none.

import type { Table } from "../feed/run_data";

export interface FailingNode {
  node: string;
  datacenter: string;
  consistency: string;
  tries: number;
  /** Failed tries by code, most frequent first. */
  codes: [string, number][];
}

const NODE = /\(node ([^,()]+), data centre ([^()]+), consistency ([A-Z_]+)\)$/;

/** The nodes with the most failed tries first, and how many of these tries were repeated. */
export function failingNodes({ messages, outcomes }: Pick<Table, "messages" | "outcomes">): { nodes: FailingNode[]; retries: number } {
  const nodes = new Map<string, FailingNode & { byCode: Map<string, number> }>();
  const metrics = new Set<number | null>();
  let tries = 0;
  for (const [metric, , code, text, n] of messages) {
    const [, node, datacenter, consistency] = text.match(NODE) ?? [];
    if (node === undefined || datacenter === undefined || consistency === undefined) continue;
    metrics.add(metric);
    tries += n;
    const place = `${node} ${datacenter} ${consistency}`;
    const known = nodes.get(place) ?? { node, datacenter, consistency, tries: 0, codes: [], byCode: new Map<string, number>() };
    known.tries += n;
    known.byCode.set(code, (known.byCode.get(code) ?? 0) + n);
    nodes.set(place, known);
  }
  // The last try of a failed operation is not repeated.
  const failed = outcomes.filter(([metric]) => metrics.has(metric)).reduce((sum, [, , , n]) => sum + n, 0);
  const list = [...nodes.values()].map(({ byCode, ...node }) => ({ ...node, codes: [...byCode].sort((a, b) => b[1] - a[1]) }));
  return { nodes: list.sort((a, b) => b.tries - a.tries), retries: Math.max(0, tries - failed) };
}
