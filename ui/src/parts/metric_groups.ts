// Puts the rows of the metrics table into groups that fold: `checkout/pay` belongs to `checkout`. A
// group with a metric of its own is that metric's row. It changes no figure.

import type { Entry } from "./metrics_table";

/** Ids of groups without a metric: below the one of all requests. */
const FIRST_ID = -2;

/** The part of a name before its first slash; null for a path such as `GET /cart` and for no slash. */
export function groupOf(name: string): string | null {
  const [end, blank] = [name.indexOf("/"), name.search(/\s/)];
  return end <= 0 || (blank >= 0 && blank < end) ? null : name.slice(0, end);
}

const asMembers = new WeakMap<Entry, Entry>();

/** The entry as a member of its group; the same one each time, so that its row is not rendered again. */
function memberOf(entry: Entry): Entry {
  const member = asMembers.get(entry) ?? { ...entry, member: true };
  asMembers.set(entry, member);
  return member;
}

/** The entries with the members of each group below it, in the order in which they came. */
export function arrangeGroups(entries: Entry[], folded: ReadonlySet<string>, nameOf: (entry: Entry) => string): Entry[] {
  const members = new Map<string, Entry[]>();
  for (const entry of entries) {
    const group = groupOf(nameOf(entry));
    if (group === null) continue;
    const own = members.get(group);
    if (own) own.push(entry);
    else members.set(group, [entry]);
  }
  if (members.size === 0) return entries;
  const owners = new Map(entries.map((entry) => [nameOf(entry), entry]));
  const isGroup = (name: string): boolean => owners.has(name) || (members.get(name)?.length ?? 0) > 1;
  const done = new Set<string>();
  const withMembers = (head: Entry, name: string): Entry[] => {
    const own = members.get(name) ?? [];
    done.add(name);
    const group = { name, members: own.length, folded: folded.has(name) };
    return [{ ...head, group }, ...(group.folded ? [] : own.map(memberOf))];
  };
  return entries.flatMap((entry) => {
    const name = nameOf(entry);
    const group = groupOf(name);
    if (members.has(name)) return done.has(name) ? [] : withMembers(entry, name);
    if (group === null || !isGroup(group)) return [entry];
    const owner = owners.get(group);
    if (done.has(group) || owner) return [];
    return withMembers({ id: FIRST_ID - done.size, metric: null, label: group, figure: () => undefined, key: 0 }, group);
  });
}
