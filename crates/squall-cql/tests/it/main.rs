//! Tests of squall-cql's public interface against what the Java tool wrote.

mod profile_rows;
