//! Console pages of grants: list and revoke.

use crate::http::console::paths;
use crate::http::request::Raw;
use actix_web::http::StatusCode;
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};

use super::super::State;
use super::super::error::Error;
use super::approvals::parameter;
use super::form::Form;
use super::session::visitor;
use super::view::grants::grants;
use super::{Turned, page, respond, see};
use crate::domain::ids::GrantId;
use crate::surfaces::decisions::ListQuery;

pub(in crate::http) async fn list(
    Raw {
        state,
        request,
        exchange,
        ..
    }: Raw,
) -> HttpResponse {
    exchange.finish(Ok(respond(&state, &request, shown(&state, &request).await).await))
}

pub(in crate::http) async fn revoke(
    Raw {
        state,
        request,
        payload,
        exchange,
    }: Raw,
) -> HttpResponse {
    exchange.finish(Ok(
        respond(&state, &request, revoked(&state, &request, payload).await).await
    ))
}

async fn shown(state: &State, request: &HttpRequest) -> Result<HttpResponse, Turned> {
    let visitor = visitor(state, request).await?;
    let query = ListQuery {
        page_size: super::PAGE_SIZE,
        page_token: parameter(request, "page_token"),
        ..ListQuery::default()
    };
    let approvals = &state.edge.approvals;
    let found = approvals.grants(&visitor.caller, visitor.user.clone(), query).await?;
    let about = parameter(request, "about").and_then(|about| GrantId::parse(&about));
    let body = grants(&visitor, &found.items, about, found.next_page_token.as_deref());
    Ok(page(StatusCode::OK, Some(&visitor), "Always allowed", &body))
}

async fn revoked(state: &State, request: &HttpRequest, payload: Payload) -> Result<HttpResponse, Turned> {
    let visitor = visitor(state, request).await?;
    Form::read(state, request, payload, visitor.form_token.as_deref()).await?;
    let id = request.match_info().get("id").and_then(GrantId::parse);
    let id = id.ok_or(Error::NotFound)?;
    let approvals = &state.edge.approvals;
    approvals.revoke(&visitor.caller, visitor.user.clone(), id).await?;
    Ok(see(&format!("{}?about={id}", paths::GRANTS)))
}
