//! The names that templates may use: variables, data columns, extracted values. Reads the data files.

use super::{Builder, http::start_of};
use crate::{
    Given,
    data::{DataTable, Order, Per},
    program::SlotSpec,
    read::{RawData, RawJson, RawScenario},
    template::{Binding, DataNames, Value},
};

impl Builder<'_, '_> {
    /// Fills the scope and returns what stands behind it.
    pub(super) fn names(&mut self, raw: &RawScenario) -> (Vec<DataTable>, Vec<SlotSpec>) {
        let mut slots = Vec::new();
        let extracted = self.extracted(raw);
        self.scope.without_data = true;
        for (name, value) in &raw.variables {
            self.variable(name, value, extracted.contains(&name.value), &mut slots);
        }
        self.scope.without_data = false;
        for name in extracted {
            if !self.scope.variables.contains_key(&name) {
                self.scope.variables.insert(name.clone(), Binding::Slot(slots.len()));
                slots.push(SlotSpec { name, initial: None, literal: false });
            }
        }
        let mut tables = Vec::new();
        for data in &raw.data {
            let table = self.data(data);
            self.see(data.name.as_ref(), data.file.as_ref(), table, &mut tables);
        }
        for resource in &raw.resources {
            let table = self.resource(resource);
            self.see(resource.name.as_ref(), resource.file.as_ref(), table, &mut tables);
        }
        (tables, slots)
    }

    /// Lets templates use a data source.
    fn see(
        &mut self,
        name: Option<&Given<String>>,
        file: Option<&Given<String>>,
        table: Option<DataTable>,
        tables: &mut Vec<DataTable>,
    ) {
        let columns = table.as_ref().map(|table| table.columns.clone());
        let missing = table.as_ref().map_or_else(Vec::new, |table| table.missing.clone());
        let file = file.map_or_else(String::new, |file| file.value.clone());
        if let Some(name) = name {
            self.scope.data.insert(name.value.clone(), DataNames { index: tables.len(), file, columns, missing });
        }
        tables.extend(table);
    }

    /// A variable may use those above it. One that is constant is folded into every text; any other is drawn anew for each user.
    fn variable(&mut self, name: &Given<String>, value: &RawJson, extracted: bool, slots: &mut Vec<SlotSpec>) {
        if !is_name(&name.value) {
            let hint = "use letters, digits, _ and -, beginning with a letter";
            self.problems.hint(&name.place, format!("`{}` cannot be a variable's name", name.value), hint);
        }
        let (template, literal) = match value {
            RawJson::Literal(given) => (crate::template::Template::text(&given.value), true),
            RawJson::Text(given) => {
                let template = self.template(given).fold();
                let literal = template.is_number();
                (template, literal)
            }
            RawJson::Array(_) | RawJson::Object(_) => unreachable!("refused when it was read"),
        };
        let binding = match template.constant() {
            Some(text) if !extracted => Binding::Constant(Value { text: text.to_owned(), literal }),
            _ => {
                slots.push(SlotSpec { name: name.value.clone(), initial: Some(template), literal });
                Binding::Slot(slots.len() - 1)
            }
        };
        self.scope.variables.insert(name.value.clone(), binding);
    }

    /// All names that any response sets, in the order of the file.
    fn extracted(&mut self, raw: &RawScenario) -> Vec<String> {
        let inline = raw.tasks.iter().filter_map(|task| task.request.as_ref());
        let steps = raw.tasks.iter().flat_map(|task| &task.steps).chain(&raw.on_start);
        let requests = inline.chain(steps.filter_map(|step| step.request.as_ref()));
        let mut names: Vec<String> = Vec::new();
        for (name, _) in requests.flat_map(|request| &request.extract) {
            if !is_name(&name.value) {
                let hint = "use letters, digits, _ and -, beginning with a letter";
                self.problems.hint(&name.place, format!("`{}` cannot be a variable's name", name.value), hint);
            }
            if !names.contains(&name.value) {
                names.push(name.value.clone());
            }
        }
        names
    }

    fn data(&mut self, raw: &RawData) -> Option<DataTable> {
        let order = match raw.order.as_ref().map(|given| given.value.as_str()) {
            None | Some("in_turn") => Some(Order::InTurn),
            Some("random") => Some(Order::Random),
            Some("unique") => Some(Order::Unique),
            Some(other) => {
                let place = &raw.order.as_ref()?.place;
                self.problems.hint(place, format!("unknown order `{other}`"), "there are in_turn, random and unique");
                None
            }
        };
        let per = match raw.per.as_ref().map(|given| given.value.as_str()) {
            None | Some("iteration") => Some(Per::Iteration),
            Some("user") => Some(Per::User),
            Some(other) => {
                let place = &raw.per.as_ref()?.place;
                self.problems.hint(place, format!("unknown `per = \"{other}\"`"), "there are iteration and user");
                None
            }
        };
        if raw.name.is_none() {
            self.problems.hint(&raw.place, "data needs a name", "add name = \"user\" and use {{ user.column }}");
        }
        if raw.file.is_none() {
            self.problems.hint(&raw.place, "data needs a file", "add file = \"users.csv\"");
        }
        // What is wrong already is no reason to keep quiet about the file and about who uses what of it.
        if let Some(name) = &raw.name {
            self.new_name(name, "data");
        }
        let mut table = self.rows(raw.name.as_ref().map_or("data", |name| &name.value), raw.file.as_ref()?)?;
        (table.order, table.per) = (order.unwrap_or(Order::InTurn), per.unwrap_or(Per::Iteration));
        Some(table)
    }

    /// Refuses a name that is taken, or is none.
    pub(super) fn new_name(&mut self, name: &Given<String>, what: &str) {
        if self.scope.data.contains_key(&name.value) {
            self.problems.add(&name.place, format!("there is already data called `{}`", name.value));
        } else if !is_name(&name.value) || (what != "data" && !name.value.is_ascii()) {
            self.problems.add(&name.place, format!("`{}` cannot be a name of {what}", name.value));
        }
    }

    pub(super) fn rows(&mut self, name: &str, file: &Given<String>) -> Option<DataTable> {
        let read: fn(&str, &[u8]) -> Result<DataTable, String> = match file.value.rsplit('.').next() {
            Some("csv") => DataTable::csv,
            Some("jsonl" | "ndjson") => DataTable::jsonl,
            _ => {
                self.problems.hint(
                    &file.place,
                    format!("`{}` is of no known kind", file.value),
                    "data comes from files that end in .csv, .jsonl or .ndjson",
                );
                return None;
            }
        };
        let bytes = self.read_file(file)?;
        match read(name, &bytes) {
            Ok(table) => Some(table),
            Err(error) => {
                self.problems.add(&file.place, format!("{}: {error}", file.value));
                None
            }
        }
    }

    /// The bytes of a file that the scenario names.
    pub(super) fn read_file(&mut self, file: &Given<String>) -> Option<Vec<u8>> {
        match self.files.read(&file.value) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                let path = self.files.locate(&file.value);
                self.problems.hint(&file.place, format!("cannot read {}: {error}", path.display()), start_of(file));
                None
            }
        }
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
}
