// The table of metrics alone, with all columns.

import type { JSX } from "preact";
import { MetricsTable } from "../parts/metrics_table";
import { Segments } from "../parts/segments";
import { setQuery, useRoute } from "../route";
import { useMeasurements } from "../store";
import { Empty } from "./empty";

export default function Metrics(): JSX.Element {
  const { state } = useMeasurements();
  const times = useRoute().query.get("times") ?? "response";
  if (!state?.plan) return <Empty />;
  return (
    <>
      <div class="tools">
        <Segments
          label="Response or service time"
          value={times}
          options={[
            ["response", "Response"],
            ["service", "Service"],
          ]}
          onChoose={(value) => setQuery("times", value === "service" ? value : null)}
        />
      </div>
      <MetricsTable />
    </>
  );
}
