//! Console pages of grants: list and revoke.

use crate::http::console::paths;
use actix_web::HttpResponse;
use actix_web::http::StatusCode;

use super::form::Form;
use super::session::Visitor;
use super::view::grants::grants;
use super::{Parameters, Turned, page, see};
use crate::domain::ids::GrantId;
use crate::http::request::{Id, Open};
use crate::surfaces::decisions::ListQuery;

pub(crate) async fn list(edge: Open, visitor: Visitor, given: Parameters) -> Result<HttpResponse, Turned> {
    let query = ListQuery {
        page_size: super::PAGE_SIZE,
        page_token: given.get("page_token"),
        ..ListQuery::default()
    };
    let approvals = &edge.approvals;
    let found = approvals.grants(&visitor.caller, visitor.user.clone(), query).await?;
    let about = given.get("about").and_then(|about| GrantId::parse(&about));
    let body = grants(&visitor, &found.items, about, found.next_page_token.as_deref());
    Ok(page(StatusCode::OK, Some(&visitor), "Always allowed", &body))
}

pub(crate) async fn revoke(edge: Open, visitor: Visitor, _: Form, Id(id): Id<GrantId>) -> Result<HttpResponse, Turned> {
    let approvals = &edge.approvals;
    approvals.revoke(&visitor.caller, visitor.user.clone(), id).await?;
    Ok(see(&format!("{}?about={id}", paths::GRANTS)))
}
