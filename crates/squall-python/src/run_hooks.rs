//! Set-up and tear-down of a run: functions of the scenario's module, called outside of any user. Decides neither when nor where.

use pyo3::prelude::*;
use squall_cli::ScenarioHooks;

use crate::watchdog;

/// `squall._hooks.ScenarioHooks` of a loaded scenario.
pub(crate) struct PythonHooks {
    hooks: Py<PyAny>,
}

impl PythonHooks {
    /// Those of `loaded`, if it has any.
    pub(crate) fn from_loaded(loaded: &Bound<'_, PyAny>) -> PyResult<Option<PythonHooks>> {
        let hooks = loaded.getattr("hooks")?;
        Ok((!hooks.is_none()).then(|| PythonHooks { hooks: hooks.unbind() }))
    }

    fn call<T>(
        &self,
        name: &str,
        made: Option<&str>,
        read: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Result<T, String> {
        Python::attach(|py| {
            let hooks = self.hooks.bind(py);
            // Nobody's time limits it, but the second Ctrl-C ends it like any other code.
            let _watchdog = watchdog::watch(py, None);
            let (called, _) = watchdog::step(None, || match made {
                Some(made) => hooks.call_method1(name, (made,)),
                None => hooks.call_method0(name),
            });
            called.and_then(|value| read(&value)).map_err(|error| {
                // With its traceback, which says where.
                let (short, raised) = (error.to_string(), error.into_value(py));
                let errors = py.import("squall._errors");
                let words = errors.and_then(|errors| errors.call_method1("describe", (raised,))?.extract());
                words.unwrap_or(short)
            })
        })
    }
}

impl ScenarioHooks for PythonHooks {
    fn set_up(&self) -> Result<String, String> {
        self.call("set_up", None, |made| made.extract())
    }

    fn apply_set_up_data(&self, made: &str) -> Result<(), String> {
        self.call("share", Some(made), |_| Ok(()))
    }

    fn tear_down(&self, made: &str) -> Result<(), String> {
        self.call("tear_down", Some(made), |_| Ok(()))
    }
}
