//! Exports of the logs: `GET /v1/export/{source}`, `GET /v1/exports/{id}`.
//!
//! The server cannot send trailers, so the manifest says afterwards what was sent. The audit log has it.

use std::io;

use actix_web::HttpResponse;
use actix_web::http::header::{self, ContentDisposition, HeaderValue};
use actix_web::http::{Method, StatusCode};
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::mpsc;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat};

use super::answer::{Answer, Json};
use super::error::Error;
use super::request::{Ctx, Id, Named, Query, RowsOf};
use crate::api::exports::{ExportFormat, ExportManifest, ExportSource};
use crate::domain::budget::Share;
use crate::domain::ids::ExportId;
use crate::http::exchange::Exchange;
use crate::http::headers;
use crate::http::openapi::{About, string};
use crate::http::query::{Fields, Parameters};
use crate::http::routes::{Path, operations};
use crate::surfaces::exports::{Begun, ExportOptions, Piece};

operations! {
    exportRows = export: [Forbidden, Overloaded, QueryTooSlow];
    getExport = manifest: [];
}

/// Exports all rows of a log.
///
/// Oldest first, up to the last row at the start of the request. Visibility is the same as for lists; the audit log needs a
/// service, or a user with the role `analyst`. Columns are those of the analysts' view. Each export is entered into the
/// audit log. If it fails, the connection is broken: it never ends as if it were whole.
#[utoipa::path(get, path = "/v1/export/{source}")]
pub(super) async fn export(
    ctx: Ctx,
    Id(source): Id<ExportSource>,
    RowsOf(user): RowsOf,
    Query(options): Query<ExportOptions>,
) -> Result<Export, Error> {
    let exports = &ctx.state.room.exports;
    let share = exports.take(ctx.caller.tenant.as_str(), &ctx.caller.name(), 1)?;
    let format = options.format;
    let begun = ctx.exports.begin(&ctx.caller, user, source, options).await?;
    Ok(Export {
        begun,
        file: format!("{source}.{format}"),
        media: format.media(),
        head_only: ctx.http.method() == Method::HEAD,
        share,
    })
}

/// Reads what an export has taken.
///
/// Once it has ended: how many rows and bytes, and their digest. An export of another tenant or user answers 404.
#[utoipa::path(get, path = "/v1/exports/{id}")]
pub(super) async fn manifest(ctx: Ctx, Id(id): Id<ExportId>) -> Result<Json<ExportManifest>, Error> {
    Ok(Json(ctx.exports.manifest(&ctx.caller, id).await?))
}

impl Named for ExportSource {
    const SEGMENTS: &'static [(&'static str, &'static str)] = &[(
        "source",
        "`decisions`, `tool-invocations`, `model-turns`, `actions` or `audit`.",
    )];
    const MISSING: &'static str = "There is no export of {source}; there are those of decisions, tool-invocations, model-turns, actions and audit.";

    fn parse(path: &Path<'_>) -> Option<Self> {
        Self::parse(path.get("source"))
    }
}

impl Parameters for ExportOptions {
    fn read(fields: &mut Fields<'_>) -> Self {
        let format = fields.name("format", "The format.", ExportFormat::NAMES);
        let filter = "As that of the list, with the fields at `/v1/fields`; of model calls, that of their decisions. The audit \
                      log has kind, actor, decision_id, action_id, tool and at.";
        let columns = "The columns, in this order, separated by commas. Absent: all, without texts unless `content`.";
        let content = "`true` adds the columns with texts of users, models and tools, depending on `records.content`.";
        let raw = "`true` leaves texts of CSV as they are. Otherwise one that begins with `=`, `+`, `-`, `@`, a tab or a \
                   carriage return gets a `'` before it, since a spreadsheet takes it for a formula.";
        Self {
            format: format.unwrap_or(ExportFormat::Csv),
            filter: fields.text("filter", filter),
            fields: fields.texts("fields", columns),
            content: fields.flag("content", content),
            from: fields.time(
                "from",
                "Only rows of this time or later; RFC 3339. Absent: from the first.",
            ),
            to: fields.time("to", "Only rows before this time; RFC 3339. Absent: to the last."),
            raw: fields.flag("raw", raw),
        }
    }
}

/// The answer that streams an export.
pub(super) struct Export {
    begun: Begun,
    file: String,
    media: &'static str,
    /// Nothing is taken, so nothing is entered.
    head_only: bool,
    share: Share,
}

impl Answer for Export {
    fn respond(self, exchange: Exchange) -> HttpResponse {
        let mut head = HttpResponse::Ok();
        head.insert_header((header::CONTENT_TYPE, self.media))
            .insert_header((header::CACHE_CONTROL, headers::NO_STORE))
            .insert_header(ContentDisposition::attachment(self.file));
        if self.head_only {
            return exchange.finish(Ok(head.finish()));
        }
        head.insert_header((headers::REQUEST_ID, exchange.id.header.clone()))
            .insert_header((headers::ACCEL_BUFFERING, HeaderValue::from_static("no")))
            .insert_header((headers::EXPORT, self.begun.id().to_string()));
        let body = Body {
            pieces: self.begun.start(),
            rest: Bytes::new(),
            exchange,
            _share: self.share,
        };
        head.streaming(stream::unfold(Some(body), Body::next))
    }

    fn describe(about: &mut About<'_>) {
        let text = ContentBuilder::new().schema(Some(string().build())).build();
        about.contents(&[ExportFormat::Csv.media(), ExportFormat::Ndjson.media()], &text);
        let format = SchemaFormat::KnownFormat(KnownFormat::Binary);
        let binary = ContentBuilder::new().schema(Some(string().format(Some(format)).build()));
        if let Some(response) = about.response("200") {
            let media = ExportFormat::Parquet.media().to_owned();
            response.content.insert(media, RefOr::T(binary.build()));
        }
        about.headers(&["X-Gavel-Export"]);
    }
}

/// The most that is handed to a connection at once.
const PIECE: usize = 64 << 10;

struct Body {
    pieces: mpsc::Receiver<Piece>,
    rest: Bytes,
    exchange: Exchange,
    _share: Share,
}

impl Body {
    /// The next bytes. An error makes the server close the connection within the body, which tells the client that there
    /// was more.
    async fn next(body: Option<Self>) -> Option<(io::Result<Bytes>, Option<Self>)> {
        let mut body = body?;
        while body.rest.is_empty() {
            match body.pieces.recv().await {
                Some(Piece::Bytes(bytes)) => body.rest = bytes,
                Some(Piece::End) => {
                    body.exchange.answered(StatusCode::OK);
                    return None;
                }
                None => {
                    body.exchange.answered(StatusCode::INTERNAL_SERVER_ERROR);
                    return Some((Err(io::Error::other("the export was broken off")), None));
                }
            }
        }
        let piece = body.rest.split_to(body.rest.len().min(PIECE));
        Some((Ok(piece), Some(body)))
    }
}
