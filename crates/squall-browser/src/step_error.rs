//! Why a step of a browser user failed, in words that name what stood in its way.

use crate::CdpError;

/// Why a step failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    #[error("cannot open {url}: {reason}")]
    Navigation { url: String, reason: String },
    #[error("{url} answered with status {status}")]
    Status { url: String, status: u16 },
    /// The step's time was over.
    #[error("{action} took too long: {problem}")]
    Timeout { action: String, problem: String },
    #[error("expected {problem}")]
    Expectation { problem: String },
    /// The action cannot succeed, however long it waits.
    #[error("{action} is not possible: {problem}")]
    Impossible { action: String, problem: String },
    #[error("the page crashed")]
    Crashed,
    #[error(transparent)]
    Browser(#[from] CdpError),
}

impl StepError {
    /// A short name for the outcome of the step.
    pub fn code(&self) -> &'static str {
        match self {
            StepError::Navigation { .. } => "NAVIGATION_FAILED",
            StepError::Status { .. } => "STATUS",
            StepError::Timeout { .. } => "STEP_TIMEOUT",
            StepError::Expectation { .. } => "EXPECTATION_FAILED",
            StepError::Impossible { .. } => "BAD_STEP",
            StepError::Crashed => "PAGE_CRASHED",
            StepError::Browser(_) => "BROWSER_LOST",
        }
    }
}
