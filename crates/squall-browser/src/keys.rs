//! The keys that a step can press, with what the DevTools protocol needs to know of each. Sends nothing.

#[cfg(feature = "cdp")]
use serde_json::{Value, json};

/// Name, code, Windows key code and text of keys that are no single character.
const NAMED_KEYS: [(&str, &str, u32, &str); 15] = [
    ("Enter", "Enter", 13, "\r"),
    ("Tab", "Tab", 9, ""),
    ("Escape", "Escape", 27, ""),
    ("Space", "Space", 32, " "),
    ("Backspace", "Backspace", 8, ""),
    ("Delete", "Delete", 46, ""),
    ("Insert", "Insert", 45, ""),
    ("Home", "Home", 36, ""),
    ("End", "End", 35, ""),
    ("PageUp", "PageUp", 33, ""),
    ("PageDown", "PageDown", 34, ""),
    ("ArrowUp", "ArrowUp", 38, ""),
    ("ArrowDown", "ArrowDown", 40, ""),
    ("ArrowLeft", "ArrowLeft", 37, ""),
    ("ArrowRight", "ArrowRight", 39, ""),
];

/// Whether a step can press `key`: one character, or a name such as `Enter`.
pub fn is_known_key(key: &str) -> bool {
    key.chars().count() == 1 || NAMED_KEYS.iter().any(|(name, ..)| *name == key)
}

/// The parameters of `Input.dispatchKeyEvent` for pressing and releasing `key`.
#[cfg(feature = "cdp")]
pub(crate) fn key_events(key: &str) -> Option<[Value; 2]> {
    if !is_known_key(key) {
        return None;
    }
    let named = NAMED_KEYS.iter().find(|(name, ..)| *name == key);
    let upper = key.to_ascii_uppercase().bytes().next().filter(u8::is_ascii_alphanumeric).unwrap_or(0);
    let (code, number, text) =
        named.map_or(("", u32::from(upper), key), |(_, code, number, text)| (*code, *number, *text));
    let name = if key == "Space" { " " } else { key };
    let event = |kind: &str| json!({ "type": kind, "key": name, "code": code, "windowsVirtualKeyCode": number });
    let mut down = event(if text.is_empty() { "rawKeyDown" } else { "keyDown" });
    if !text.is_empty() {
        down["text"] = text.into();
    }
    Some([down, event("keyUp")])
}
