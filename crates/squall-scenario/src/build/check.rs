//! Compiles expectations and extractions. Responses are judged in [`check`](crate::check).

use regex::bytes::Regex;
use serde_json_path::JsonPath;
use std::time::Duration;

use super::ScenarioBuilder;
use crate::{
    Sourced,
    check::{ExtractSource, JsonCheck, JsonExpectation, ResponseChecks, TextCheck, ValueExtractor},
    read::{RawExpect, RawExtract, RawHeaderCheck, RawJsonCheck},
    template::VariableBinding,
};

impl ScenarioBuilder<'_, '_> {
    pub(super) fn checks(&mut self, raw: &RawExpect) -> ResponseChecks {
        let statuses = raw.status.iter().filter_map(|status| self.status(status)).collect();
        let headers = raw.headers.iter().filter_map(|(name, check)| {
            let check = match check {
                RawHeaderCheck::Equals(value) => TextCheck::Equals(self.template(value).fold_constants()),
                RawHeaderCheck::Contains(value) => TextCheck::Contains(self.template(value).fold_constants()),
                RawHeaderCheck::Matches(pattern) => TextCheck::Matches(self.regex(pattern)?),
                RawHeaderCheck::Present(present) => TextCheck::Present(*present),
            };
            Some((name.value.clone(), check))
        });
        let headers = headers.collect();
        let mut body = Vec::new();
        for text in &raw.body_contains {
            body.push(TextCheck::Contains(self.template(text).fold_constants()));
        }
        body.extend(raw.body_matches.iter().filter_map(|pattern| self.regex(pattern).map(TextCheck::Matches)));
        let json = raw.json.iter().filter_map(|(path, check)| self.json_check(path, check)).collect();
        let max = raw.max_ms.as_ref().and_then(|given| {
            let max = Duration::try_from_secs_f64(given.value / 1000.0).ok().filter(|max| !max.is_zero());
            if max.is_none() {
                self.problems.add(&given.location, "max_ms must be a number of milliseconds above 0");
            }
            max
        });
        ResponseChecks { statuses, headers, body, json, max_service_time: max }
    }

    /// `200` or `2xx`.
    fn status(&mut self, given: &Sourced<String>) -> Option<(u16, u16)> {
        let text = given.value.trim();
        let class = text.strip_suffix("xx").or(text.strip_suffix("XX")).and_then(|class| class.parse::<u16>().ok());
        if let Some(class @ 1..=5) = class {
            return Some((class * 100, class * 100 + 99));
        }
        match text.parse::<u16>() {
            Ok(status @ 100..=599) => Some((status, status)),
            _ => {
                self.problems.add_with_hint(
                    &given.location,
                    format!("`{text}` is not a status"),
                    "write 200, [200, 201] or \"2xx\"",
                );
                None
            }
        }
    }

    fn regex(&mut self, given: &Sourced<String>) -> Option<Regex> {
        // Limited, because a pattern like (a{999}){999} would use up the machine's memory.
        match regex::bytes::RegexBuilder::new(&given.value).size_limit(1 << 20).build() {
            Ok(regex) => Some(regex),
            Err(error) => {
                let text = error.to_string();
                let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                self.problems.add_with_hint(
                    &given.location,
                    format!("bad regular expression: {last}"),
                    "see https://docs.rs/regex",
                );
                None
            }
        }
    }

    fn json_path(&mut self, given: &Sourced<String>) -> Option<JsonPath> {
        match JsonPath::parse(&given.value) {
            Ok(path) => Some(path),
            Err(error) => {
                let at = error.position().min(given.value.len());
                let location = self.locate_within(given, &(at..given.value.len()));
                let hint = "write for example $.items[0].id or $['item-id'] (RFC 9535)";
                let said = match error.message() {
                    "parser error" => "it cannot be read from here on",
                    said => said,
                };
                self.problems.add_with_hint(&location, format!("bad JSONPath: {said}"), hint);
                None
            }
        }
    }

    fn json_check(&mut self, path: &Sourced<String>, check: &RawJsonCheck) -> Option<JsonCheck> {
        let wanted = match check {
            RawJsonCheck::Present(present) => JsonExpectation::Present(*present),
            RawJsonCheck::Count(count) => JsonExpectation::Count(usize::try_from(*count).unwrap_or(usize::MAX)),
            RawJsonCheck::Equals(value) => {
                let template = self.json_template(value);
                match template.constant().map(serde_json::from_str) {
                    Some(Ok(value)) => JsonExpectation::EqualsConstant(value),
                    _ => JsonExpectation::Equals(template),
                }
            }
        };
        let (path, shown) = (self.json_path(path)?, path.value.clone());
        Some(JsonCheck { path, path_text: shown, expected: wanted })
    }

    pub(super) fn extract(&mut self, name: &Sourced<String>, raw: &RawExtract) -> Option<ValueExtractor> {
        let source = match (&raw.json, &raw.header, &raw.regex) {
            (Some(path), _, _) => ExtractSource::Json(self.json_path(path)?, path.value.clone()),
            (_, Some(header), _) => ExtractSource::Header(header.value.clone()),
            (_, _, Some(pattern)) => {
                let regex = self.regex(pattern)?;
                let default = usize::from(regex.captures_len() > 1);
                let group = raw.group.as_ref().map_or(default, |group| group.value as usize);
                if group >= regex.captures_len() {
                    let location = raw.group.as_ref().map_or(&pattern.location, |group| &group.location);
                    self.problems.add(location, format!("the pattern has no group {group}"));
                }
                ExtractSource::Regex(regex, group)
            }
            (None, None, None) => return None,
        };
        if let (Some(group), true) = (&raw.group, raw.regex.is_none()) {
            self.problems.add(&group.location, "`group` belongs to a regex");
        }
        let default = raw.default.as_ref().map(|given| given.value.clone());
        match self.scope.variables.get(&name.value) {
            Some(VariableBinding::Variable(index)) => {
                Some(ValueExtractor { variable: *index, name: name.value.clone(), source, default })
            }
            _ => unreachable!("every extracted name is a variable"),
        }
    }
}
