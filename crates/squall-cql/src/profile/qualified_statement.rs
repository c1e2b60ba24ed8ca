//! Puts the keyspace before the table names of a profile's query. The connections of a run use no
//! keyspace of their own, because several profiles share them. It checks no CQL: the database does.

use crate::cql_text::quoted_name;

/// The words before a table name in statements that read and write rows.
const BEFORE_TABLE: [&str; 3] = ["from", "into", "update"];

/// `select * from t` becomes `select * from "ks".t`. A table with a keyspace stays as it is.
pub(crate) fn qualified_statement(keyspace: &str, cql: &str) -> String {
    let mut qualified = String::with_capacity(cql.len() + keyspace.len() + 3);
    let (mut rest, mut table_follows) = (cql.trim().trim_end_matches(';'), false);
    while !rest.is_empty() {
        let (token, after) = rest.split_at(token_length(rest));
        let is_name = token.starts_with(|c: char| c == '"' || is_word(c));
        if table_follows && is_name && !after.trim_start().starts_with('.') {
            qualified.push_str(&quoted_name(keyspace));
            qualified.push('.');
        }
        qualified.push_str(token);
        if !token.trim().is_empty() {
            table_follows = BEFORE_TABLE.iter().any(|word| token.eq_ignore_ascii_case(word));
        }
        rest = after;
    }
    qualified
}

/// The length of the first word, quoted text, run of white space or single character.
fn token_length(text: &str) -> usize {
    let first = text.chars().next().unwrap_or(' ');
    let run = |matches: fn(char) -> bool| text.find(|c| !matches(c)).unwrap_or(text.len());
    match first {
        // A doubled quote inside the text begins another token, which is harmless.
        '\'' | '"' => text[1..].find(first).map_or(text.len(), |end| end + 2),
        _ if is_word(first) => run(is_word),
        _ if first.is_whitespace() => run(char::is_whitespace),
        _ => first.len_utf8(),
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cql: &str, expected: &str) {
        assert_eq!(qualified_statement("k", cql), expected);
    }

    #[test]
    fn bare_tables_get_the_keyspace() {
        check("select * from t where a = ?;", "select * from \"k\".t where a = ?");
        check("INSERT INTO T (a) VALUES ('from x')", "INSERT INTO \"k\".T (a) VALUES ('from x')");
        check("UPDATE  \"T t\" SET a=1", "UPDATE  \"k\".\"T t\" SET a=1");
        check("delete from o.t where a = 'it''s from b'", "delete from o.t where a = 'it''s from b'");
        check("select from_x, \"from\" from t", "select from_x, \"from\" from \"k\".t");
        check("select from", "select from");
        check("'", "'");
    }
}
