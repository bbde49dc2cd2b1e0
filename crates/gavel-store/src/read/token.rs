//! Page tokens: opaque to callers, and valid only for the query that they came from.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::super::db::row::{Cell, Row};
use super::filter::Term;
use crate::domain::ids::{ProjectId, TenantId};
use crate::ports::records::{ListQuery, QueryError};

/// The columns that it is read from.
pub(super) const AT: &str = "page_at";
pub(super) const ID: &str = "page_id";

/// The last row of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) at: i64,
    pub(super) id: String,
}

/// A hash of everything that must be the same on the next page; the page size may differ.
pub(super) fn fingerprint(
    table: &str,
    (tenant, project): (&TenantId, Option<&ProjectId>),
    query: &ListQuery,
    terms: &[Term],
    descending: bool,
) -> [u8; 8] {
    let user = query.user.as_ref().map_or("", |user| user.as_str());
    let project = project.map_or("", ProjectId::as_str);
    let filter = query.filter.as_deref().unwrap_or_default().trim();
    let direction = if descending { "desc" } else { "asc" };
    let mut hash = Sha256::new();
    for part in [table, tenant.as_str(), project, user, direction, filter] {
        hash.update(part.len().to_be_bytes());
        hash.update(part.as_bytes());
    }
    for term in terms {
        hash.update(format!("{term:?}"));
    }
    let mut short = [0; 8];
    short.copy_from_slice(&hash.finalize()[..8]);
    short
}

impl Token {
    /// From the columns [`AT`] and [`ID`].
    pub(super) fn of_row(row: &Row) -> Result<Self, sqlx::Error> {
        match (row.peek(AT), row.peek(ID)) {
            (Some(Cell::Int(at)), Some(Cell::Text(id))) => Ok(Self {
                at: *at,
                id: id.clone(),
            }),
            _ => Err(sqlx::Error::ColumnNotFound(AT.to_owned())),
        }
    }

    /// Base64url of fingerprint (8 bytes), time (8, big endian) and id (16).
    pub(super) fn write(&self, fingerprint: [u8; 8]) -> String {
        let mut bytes = Vec::with_capacity(32);
        bytes.extend(fingerprint);
        bytes.extend(self.at.to_be_bytes());
        // Row ids are made by gavel and are UUIDs. Any other id would restart the list; it would not leak data.
        bytes.extend(Uuid::try_parse(&self.id).unwrap_or_default().into_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Parses a token that [`Token::write`] wrote for the same query.
    pub(super) fn read(text: &str, fingerprint: [u8; 8]) -> Result<Self, QueryError> {
        let invalid = |detail: &str| QueryError::Invalid {
            field: "page_token",
            detail: detail.to_owned(),
        };
        let bytes = URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
        let Ok(bytes) = <[u8; 32]>::try_from(bytes) else {
            return Err(invalid(
                "is not a page token of this API; use next_page_token of the previous page",
            ));
        };
        let (head, rest) = bytes.split_at(8);
        if head != fingerprint {
            return Err(invalid(
                "belongs to another query; filter, order_by and user must be those of the previous page",
            ));
        }
        let (time, id) = rest.split_at(8);
        let (Ok(time), Ok(id)) = (time.try_into(), id.try_into()) else {
            unreachable!("32 bytes are 8, 8 and 16");
        };
        Ok(Self {
            at: i64::from_be_bytes(time),
            id: Uuid::from_bytes(id).to_string(),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back_and_is_refused_for_another_question() {
        let token = Token {
            at: -5,
            id: Uuid::now_v7().to_string(),
        };
        let text = token.write([7; 8]);
        assert_eq!(Token::read(&text, [7; 8]).unwrap(), token);
        assert!(Token::read(&text, [8; 8]).is_err());
        assert!(Token::read("", [7; 8]).is_err());
        assert!(Token::read("%%%", [7; 8]).is_err());
    }
}
