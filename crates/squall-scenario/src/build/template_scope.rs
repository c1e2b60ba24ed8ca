//! Collects the names that templates may use: variables, data columns, extracted values. Reads the data
//! files. Resolving names in templates is the job of [`TemplateScope`](crate::template).

use super::{ScenarioBuilder, http::path_base_hint};
use crate::{
    Sourced,
    compiled_scenario::ScenarioVariable,
    data::{DataTable, DataTableError, RowLifetime, RowOrder},
    read::{RawData, RawJson, RawScenario},
    template::{DataSourceInfo, TemplateValue, VariableBinding},
};

impl ScenarioBuilder<'_, '_> {
    /// Fills the scope. Returns the tables and variables behind its names.
    pub(super) fn build_scope(&mut self, raw: &RawScenario) -> (Vec<DataTable>, Vec<ScenarioVariable>) {
        let mut variables = Vec::new();
        let extracted = self.extracted_names(raw);
        self.scope.resolving_variables = true;
        for (name, value) in &raw.variables {
            self.variable(name, value, extracted.contains(&name.value), &mut variables);
        }
        self.scope.resolving_variables = false;
        for name in extracted {
            if !self.scope.variables.contains_key(&name) {
                self.scope.variables.insert(name.clone(), VariableBinding::Variable(variables.len()));
                variables.push(ScenarioVariable { name, initial: None, literal: false });
            }
        }
        let mut tables = Vec::new();
        for data in &raw.data {
            let table = self.data(data);
            self.add_data_source(data.name.as_ref(), data.file.as_ref(), table, &mut tables);
        }
        for resource in &raw.resources {
            let table = self.resource(resource);
            self.add_data_source(resource.name.as_ref(), resource.file.as_ref(), table, &mut tables);
        }
        (tables, variables)
    }

    /// Lets templates use a data source.
    fn add_data_source(
        &mut self,
        name: Option<&Sourced<String>>,
        file: Option<&Sourced<String>>,
        table: Option<DataTable>,
        tables: &mut Vec<DataTable>,
    ) {
        let columns = table.as_ref().map(|table| table.columns.clone());
        let missing = table.as_ref().map_or_else(Vec::new, |table| table.first_missing_line.clone());
        let file = file.map_or_else(String::new, |file| file.value.clone());
        if let Some(name) = name {
            self.scope.data.insert(
                name.value.clone(),
                DataSourceInfo { index: tables.len(), file, columns, first_missing_line: missing },
            );
        }
        tables.extend(table);
    }

    /// Adds a variable, which may use those above it. A constant is folded into every template; any other
    /// variable is rendered once for each user.
    fn variable(
        &mut self,
        name: &Sourced<String>,
        value: &RawJson,
        extracted: bool,
        variables: &mut Vec<ScenarioVariable>,
    ) {
        if !is_name(&name.value) {
            let hint = "use letters, digits, _ and -, beginning with a letter";
            self.problems.add_with_hint(&name.location, format!("`{}` cannot be a variable's name", name.value), hint);
        }
        let (template, literal) = match value {
            RawJson::Literal(given) => (crate::template::Template::text(&given.value), true),
            RawJson::Text(given) => {
                let template = self.template(given).fold_constants();
                let literal = template.is_number();
                (template, literal)
            }
            RawJson::Array(_) | RawJson::Object(_) => unreachable!("the reader rejects these"),
        };
        let binding = match template.constant() {
            Some(text) if !extracted => VariableBinding::constant(TemplateValue { text: text.to_owned(), literal }),
            _ => {
                self.scope.variable_lengths.push(template.longest_text(&self.scope.variable_lengths));
                variables.push(ScenarioVariable { name: name.value.clone(), initial: Some(template), literal });
                VariableBinding::Variable(variables.len() - 1)
            }
        };
        self.scope.variables.insert(name.value.clone(), binding);
    }

    /// All names that any response sets, in the order of the file.
    fn extracted_names(&mut self, raw: &RawScenario) -> Vec<String> {
        let inline = raw.tasks.iter().filter_map(|task| task.request.as_ref());
        let steps = raw.tasks.iter().flat_map(|task| &task.steps).chain(&raw.on_start);
        let requests = inline.chain(steps.filter_map(|step| step.request.as_ref()));
        let of_requests = requests.flat_map(|request| request.extract.iter().map(|(name, _)| name));
        let inline = raw.tasks.iter().filter_map(|task| task.cql.as_ref());
        let steps = raw.tasks.iter().flat_map(|task| &task.steps).chain(&raw.on_start);
        let statements = inline.chain(steps.filter_map(|step| step.cql.as_ref()));
        let of_statements = statements.flat_map(|statement| statement.extract.iter().map(|extract| &extract.variable));
        let mut names: Vec<String> = Vec::new();
        for name in of_requests.chain(of_statements) {
            if !is_name(&name.value) {
                let hint = "use letters, digits, _ and -, beginning with a letter";
                self.problems.add_with_hint(
                    &name.location,
                    format!("`{}` cannot be a variable's name", name.value),
                    hint,
                );
            }
            if !names.contains(&name.value) {
                names.push(name.value.clone());
            }
        }
        names
    }

    fn data(&mut self, raw: &RawData) -> Option<DataTable> {
        let order = match raw.order.as_ref().map(|given| given.value.as_str()) {
            None | Some("in_turn") => Some(RowOrder::InTurn),
            Some("random") => Some(RowOrder::Random),
            Some("unique") => Some(RowOrder::Unique),
            Some(other) => {
                let location = &raw.order.as_ref()?.location;
                self.problems.add_with_hint(
                    location,
                    format!("unknown order `{other}`"),
                    "there are in_turn, random and unique",
                );
                None
            }
        };
        let per = match raw.per.as_ref().map(|given| given.value.as_str()) {
            None | Some("iteration") => Some(RowLifetime::Iteration),
            Some("user") => Some(RowLifetime::User),
            Some(other) => {
                let location = &raw.per.as_ref()?.location;
                self.problems.add_with_hint(
                    location,
                    format!("unknown `per = \"{other}\"`"),
                    "there are iteration and user",
                );
                None
            }
        };
        if raw.name.is_none() {
            self.problems.add_with_hint(
                &raw.location,
                "data needs a name",
                "add name = \"user\" and use {{ user.column }}",
            );
        }
        if raw.file.is_none() {
            self.problems.add_with_hint(&raw.location, "data needs a file", "add file = \"users.csv\"");
        }
        // Continues after an error, so that errors in the file and in its uses are reported too.
        if let Some(name) = &raw.name {
            self.check_new_name(name, "data");
        }
        let mut table = self.read_rows(raw.name.as_ref().map_or("data", |name| &name.value), raw.file.as_ref()?)?;
        (table.order, table.per) = (order.unwrap_or(RowOrder::InTurn), per.unwrap_or(RowLifetime::Iteration));
        Some(table)
    }

    /// Reports a name that is taken or not valid.
    pub(super) fn check_new_name(&mut self, name: &Sourced<String>, what: &str) {
        if self.scope.data.contains_key(&name.value) {
            self.problems.add(&name.location, format!("there is already data called `{}`", name.value));
        } else if !is_name(&name.value) || (what != "data" && !name.value.is_ascii()) {
            self.problems.add(&name.location, format!("`{}` cannot be a name of {what}", name.value));
        }
    }

    pub(super) fn read_rows(&mut self, name: &str, file: &Sourced<String>) -> Option<DataTable> {
        let read: fn(&str, &[u8]) -> Result<DataTable, DataTableError> = match file.value.rsplit('.').next() {
            Some("csv") => DataTable::csv,
            Some("jsonl" | "ndjson") => DataTable::jsonl,
            _ => {
                self.problems.add_with_hint(
                    &file.location,
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
                self.problems.add(&file.location, format!("{}: {error}", file.value));
                None
            }
        }
    }

    /// The content of a file that the scenario names.
    pub(super) fn read_file(&mut self, file: &Sourced<String>) -> Option<Vec<u8>> {
        match self.files.read(&file.value) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                let path = self.files.locate(&file.value);
                self.problems.add_with_hint(
                    &file.location,
                    format!("cannot read {}: {error}", path.display()),
                    path_base_hint(file),
                );
                None
            }
        }
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
}
