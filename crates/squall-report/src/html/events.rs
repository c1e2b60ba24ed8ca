//! The events of a run: what happened to the fleet, and breached thresholds. Each has a letter, which
//! marks it in every chart over time and in the list.

use crate::ReportInput;

/// One event.
pub(super) struct ReportEvent {
    pub(super) letter: char,
    pub(super) t_s: f64,
    pub(super) text: String,
}

/// All events in order of time. After the last letter, the first one follows.
pub(super) fn events(run: &ReportInput<'_>) -> Vec<ReportEvent> {
    let noted = run.facts.events().iter().map(|event| (event.t_s, event.text.clone()));
    let mut events: Vec<(f64, String)> = noted.collect();
    for result in &run.facts.thresholds {
        let text = format!("threshold {} was breached", result.threshold);
        if let Some(t_s) = result.breached_at_s
            && !events.iter().any(|(_, known)| *known == text)
        {
            events.push((f64::from(t_s), text));
        }
    }
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    let letters = ('A'..='Z').cycle();
    letters.zip(events).map(|(letter, (t_s, text))| ReportEvent { letter, t_s, text }).collect()
}
