//! Calls the set-up and tear-down functions of a scenario's module, outside of any user. It does
//! not decide when or on which worker they run; `squall-cli` does, through [`ScenarioHooks`].

use pyo3::prelude::*;
use squall_cli::{HookError, ScenarioHooks};

use crate::{running_code::RunningCode, watchdog};

/// The `squall._hooks.Hooks` object of a loaded scenario.
pub(crate) struct PythonHooks {
    hooks: Py<PyAny>,
}

impl PythonHooks {
    /// The hooks of `loaded`, if it has any.
    pub(crate) fn from_loaded(loaded: &Bound<'_, PyAny>) -> PyResult<Option<PythonHooks>> {
        let hooks = loaded.getattr("hooks")?;
        Ok((!hooks.is_none()).then(|| PythonHooks { hooks: hooks.unbind() }))
    }

    fn call<T>(
        &self,
        name: &str,
        set_up_data: Option<&str>,
        read: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Result<T, HookError> {
        let _running = RunningCode::begin();
        Python::attach(|py| {
            let hooks = self.hooks.bind(py);
            // Hooks have no timeout, but the second Ctrl-C interrupts them like other scenario
            // code.
            let _watchdog = watchdog::watch(py, None);
            let (called, _) = watchdog::step(None, || match set_up_data {
                Some(set_up_data) => hooks.call_method1(name, (set_up_data,)),
                None => hooks.call_method0(name),
            });
            called.and_then(|value| read(&value)).map_err(|error| {
                // `describe` adds the traceback, which shows where the hook failed.
                let (message, raised) = (error.to_string(), error.into_value(py));
                let errors = py.import("squall._errors");
                let description = errors.and_then(|errors| errors.call_method1("describe", (raised,))?.extract());
                HookError::Failed(description.unwrap_or(message))
            })
        })
    }
}

impl ScenarioHooks for PythonHooks {
    fn set_up(&self) -> Result<String, HookError> {
        self.call("set_up", None, |set_up_data| set_up_data.extract())
    }

    fn apply_set_up_data(&self, set_up_data: &str) -> Result<(), HookError> {
        self.call("share", Some(set_up_data), |_| Ok(()))
    }

    fn tear_down(&self, set_up_data: &str) -> Result<(), HookError> {
        self.call("tear_down", Some(set_up_data), |_| Ok(()))
    }
}
