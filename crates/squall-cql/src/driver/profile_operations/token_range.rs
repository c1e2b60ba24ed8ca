//! A token-range query of a profile: reads all partitions of the table range by range, one page in
//! each operation.

use super::Preparation;
use crate::{
    cql_text::{quoted_name, quoted_table},
    database::OperationError,
    driver::{
        DriverRun, OperationAnswer, OperationCounts, StatementError,
        token_ranges::{NextRange, TokenRange},
        unreadable,
    },
};
use scylla::{
    client::session::Session,
    deserialize::row::ColumnIterator,
    response::{PagingState, query_result::QueryRowsResult},
    statement::prepared::PreparedStatement,
};
use std::{fmt, ops::ControlFlow};

pub(in crate::driver) struct TokenRangeQuery {
    pub(super) statement: PreparedStatement,
}

/// How far one range is read.
#[derive(Debug)]
pub(in crate::driver) struct TokenRangeScan {
    range: TokenRange,
    /// `None` after the last page.
    page: Option<PagingState>,
    last_token: Option<i64>,
}

/// What a user reads next.
pub(in crate::driver) enum NextPage {
    Page(TokenRangeScan),
    /// No range is left for this user, and others still read theirs.
    OthersRead,
    /// The run ends.
    None,
}

impl TokenRangeQuery {
    pub(super) async fn prepare(
        preparation: Preparation<'_>,
        query: &crate::TokenRangeQuery,
    ) -> Result<TokenRangeQuery, StatementError> {
        let description = &preparation.table.description;
        let keys: Vec<String> =
            description.columns.partition_key.iter().map(|column| quoted_name(&column.name)).collect();
        let token = format!("token({})", keys.join(", "));
        let columns = match query.columns.trim() {
            "*" => {
                let names: Vec<String> = preparation.table.columns().map(|column| quoted_name(&column.name)).collect();
                names.join(", ")
            }
            columns => columns.to_owned(),
        };
        let table = quoted_table(&description.keyspace, &description.table);
        let cql = format!("SELECT {token}, {columns} FROM {table} WHERE {token} > ? AND {token} <= ?");
        let mut statement = preparation.statement(cql).await?;
        statement.set_page_size(i32::try_from(query.page_size).unwrap_or(i32::MAX));
        Ok(TokenRangeQuery { statement })
    }

    /// The next page of `scan`, or the first one of a new range. `reserved` is the number of the new range,
    /// if the workers of a fleet share the ranges.
    pub(in crate::driver) fn begin(run: &DriverRun, scan: Option<TokenRangeScan>, reserved: Option<u64>) -> NextPage {
        let scan = match scan {
            Some(scan) => scan,
            None => match run.token_ranges.take(reserved) {
                NextRange::Range(range) => TokenRangeScan::new(range),
                NextRange::OthersRead => return NextPage::OthersRead,
                NextRange::AllRead => return NextPage::None,
            },
        };
        if run.limit.take_now(1) == 1 { NextPage::Page(scan) } else { NextPage::None }
    }

    pub(super) async fn send(
        &self,
        session: &Session,
        scan: &mut TokenRangeScan,
    ) -> Result<OperationAnswer, OperationError> {
        let page = scan.page.clone().unwrap_or_else(PagingState::start);
        let bounds = (scan.range.after, scan.range.last);
        let (result, next) = session.execute_single_page(&self.statement, bounds, page).await?;
        let rows = result.into_rows_result().map_err(unreadable)?;
        let partitions = scan.count_partitions(&rows)?;
        scan.page = match next.into_paging_control_flow() {
            ControlFlow::Break(()) => None,
            ControlFlow::Continue(next) => Some(next),
        };
        let counts = OperationCounts { partitions, rows: rows.rows_num() as u64 };
        Ok(OperationAnswer { counts, bytes: rows.rows_bytes_size() as u64 })
    }
}

impl TokenRangeScan {
    fn new(range: TokenRange) -> TokenRangeScan {
        TokenRangeScan { range, page: Some(PagingState::start()), last_token: None }
    }

    /// Whether the last page of the range was read.
    pub(in crate::driver) fn is_finished(&self) -> bool {
        self.page.is_none()
    }

    /// The partitions of a page; one that began on the page before is not counted again.
    fn count_partitions(&mut self, rows: &QueryRowsResult) -> Result<u64, OperationError> {
        let mut partitions = 0;
        for row in rows.rows::<ColumnIterator<'_, '_>>().map_err(unreadable)? {
            let token = row.map_err(unreadable)?.next().transpose().map_err(unreadable)?;
            let bytes = token.and_then(|cell| cell.slice).and_then(|cell| cell.as_slice().try_into().ok());
            let token = bytes.map(i64::from_be_bytes);
            partitions += u64::from(token != self.last_token);
            self.last_token = token;
        }
        Ok(partitions)
    }
}

impl fmt::Display for TokenRangeScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tokens {}..{}", self.range.after, self.range.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TokenRangeSettings, driver::token_ranges::TokenRanges};

    #[test]
    fn a_range_with_further_pages_is_left_for_the_next_operation() {
        let ranges = TokenRanges::new(TokenRangeSettings { split_factor: 1, wrap: false });
        ranges.set_ring(Vec::new);
        let NextRange::Range(range) = ranges.take(None) else { panic!("the ring has one range") };
        ranges.leave(1, TokenRangeScan { last_token: Some(7), ..TokenRangeScan::new(range) });
        assert_eq!(ranges.take(None), NextRange::OthersRead);
        assert!(ranges.take_left(0).is_none(), "another query has read its pages");
        let scan = ranges.take_left(1).expect("the range is left");
        assert_eq!((scan.range, scan.last_token), (range, Some(7)));
        ranges.leave(1, TokenRangeScan { page: None, ..scan });
        assert!(ranges.take_left(1).is_none());
        assert_eq!(ranges.take(None), NextRange::AllRead);
    }
}
