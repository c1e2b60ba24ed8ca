//! One step of a browser user: an action and expectations. It runs nothing; `page` does. Texts are of type
//! `T`, so that squall-scenario keeps steps with templates in the same types.

/// An action and what must hold after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrowserStep<T = String> {
    /// Without an action the step only waits for its expectations.
    pub action: Option<BrowserAction<T>>,
    pub expect: Expectation<T>,
}

/// What a user does on a page. Selectors are CSS, or `text=…` for the innermost element with that text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrowserAction<T = String> {
    /// Opens a URL and waits for the `load` event.
    Goto { url: T },
    /// Clicks an element as soon as it is visible, enabled, at rest and not covered.
    Click { selector: T },
    /// Replaces the text of an input.
    Fill { selector: T, value: T },
    /// Presses a key, on an element or on what has the focus.
    Press { key: String, selector: Option<T> },
    /// Selects an option of a `<select>` by its value or its label.
    Select { selector: T, value: T },
    /// Waits until an element is visible.
    WaitFor { selector: T },
}

/// What must hold on the page before the step's time is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation<T = String> {
    /// The page's URL contains this text.
    pub url: Option<T>,
    /// The page, or the element of `selector`, shows this text.
    pub text: Option<T>,
    /// Where `text` is looked for.
    pub selector: Option<T>,
    /// This element is visible.
    pub visible: Option<T>,
    /// This element is hidden or does not exist.
    pub hidden: Option<T>,
}

impl<T> Default for Expectation<T> {
    fn default() -> Self {
        Expectation { url: None, text: None, selector: None, visible: None, hidden: None }
    }
}

impl<T> Default for BrowserStep<T> {
    fn default() -> Self {
        BrowserStep { action: None, expect: Expectation::default() }
    }
}

impl<T> Expectation<T> {
    pub fn is_empty(&self) -> bool {
        let Expectation { url, text, selector, visible, hidden } = self;
        [url, text, selector, visible, hidden].iter().all(|expected| expected.is_none())
    }

    fn try_map<U, E>(&self, mut map: impl FnMut(&T) -> Result<U, E>) -> Result<Expectation<U>, E> {
        let mut each = |text: &Option<T>| text.as_ref().map(&mut map).transpose();
        Ok(Expectation {
            url: each(&self.url)?,
            text: each(&self.text)?,
            selector: each(&self.selector)?,
            visible: each(&self.visible)?,
            hidden: each(&self.hidden)?,
        })
    }
}

impl<T> BrowserStep<T> {
    /// The same step with every text mapped, in the order in which they are used.
    pub fn try_map<U, E>(&self, mut map: impl FnMut(&T) -> Result<U, E>) -> Result<BrowserStep<U>, E> {
        let action = match &self.action {
            None => None,
            Some(BrowserAction::Goto { url }) => Some(BrowserAction::Goto { url: map(url)? }),
            Some(BrowserAction::Click { selector }) => Some(BrowserAction::Click { selector: map(selector)? }),
            Some(BrowserAction::Fill { selector, value }) => {
                Some(BrowserAction::Fill { selector: map(selector)?, value: map(value)? })
            }
            Some(BrowserAction::Press { key, selector }) => {
                let selector = selector.as_ref().map(&mut map).transpose()?;
                Some(BrowserAction::Press { key: key.clone(), selector })
            }
            Some(BrowserAction::Select { selector, value }) => {
                Some(BrowserAction::Select { selector: map(selector)?, value: map(value)? })
            }
            Some(BrowserAction::WaitFor { selector }) => Some(BrowserAction::WaitFor { selector: map(selector)? }),
        };
        Ok(BrowserStep { action, expect: self.expect.try_map(map)? })
    }
}

impl std::fmt::Display for BrowserAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BrowserAction::Goto { url } => write!(f, "goto {url}"),
            BrowserAction::Click { selector } => write!(f, "click `{selector}`"),
            BrowserAction::Fill { selector, .. } => write!(f, "fill `{selector}`"),
            BrowserAction::Press { key, selector: None } => write!(f, "press {key}"),
            BrowserAction::Press { key, selector: Some(selector) } => write!(f, "press {key} on `{selector}`"),
            BrowserAction::Select { selector, .. } => write!(f, "select in `{selector}`"),
            BrowserAction::WaitFor { selector } => write!(f, "wait_for `{selector}`"),
        }
    }
}
