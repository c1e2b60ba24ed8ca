//! Finds the known word that a mistyped one probably means. Every error about an unknown word uses
//! it.

/// The known word that is most like `typed`, if one is similar. Case does not matter.
pub(crate) fn nearest<'w>(typed: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let typed = typed.to_lowercase();
    let likeness = |word: &str| strsim::jaro_winkler(&typed, &word.to_lowercase());
    known
        .into_iter()
        .filter(|word| strsim::levenshtein(&typed, &word.to_lowercase()) * 2 <= typed.len().max(word.len()))
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
}
