//! E-mails in transport form (RFC 5322, MIME). The library encodes; the values have been validated before.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mail_builder::MessageBuilder;
use mail_builder::headers::HeaderType;
use mail_builder::headers::address::Address;
use mail_builder::headers::content_type::ContentType;
use mail_builder::headers::message_id::MessageId;
use mail_builder::headers::raw::Raw;
use mail_builder::headers::text::Text;

use crate::address::Recipient;
use crate::attachment::Attachment;
use crate::google::gmail::{KEY_HEADER, Original};

/// An e-mail that can be sent.
#[derive(Debug)]
pub(crate) struct Email {
    pub(crate) to: Vec<Recipient>,
    pub(crate) cc: Vec<Recipient>,
    pub(crate) bcc: Vec<Recipient>,
    pub(crate) subject: String,
    pub(crate) text: String,
    pub(crate) html: Option<String>,
    pub(crate) attachments: Vec<Attachment>,
}

/// Writes the message. Gmail adds the sender, and removes Bcc from the copies of all recipients.
pub(crate) fn write(
    email: &Email,
    message_id: &str,
    key: &str,
    original: Option<&Original>,
) -> std::io::Result<Vec<u8>> {
    let mut message = MessageBuilder::new()
        .message_id(message_id)
        .header(KEY_HEADER, Text::new(key))
        .to(addresses(&email.to))
        .header("Subject", subject(&email.subject))
        .text_body(lines(&email.text));
    if !email.cc.is_empty() {
        message = message.cc(addresses(&email.cc));
    }
    if !email.bcc.is_empty() {
        message = message.bcc(addresses(&email.bcc));
    }
    if let Some(html) = &email.html {
        message = message.html_body(lines(html));
    }
    for file in &email.attachments {
        // As bytes, so that no line break is changed on the way.
        let kind = ContentType::new(file.media_type).attribute("charset", "utf-8");
        message = message.attachment(kind, file.filename.as_str(), file.text.as_bytes());
    }
    if let Some(original) = original {
        if let Some(message_id) = &original.message_id {
            message = message.in_reply_to(message_id.as_str());
        }
        if !original.references.is_empty() {
            message = message.references(MessageId::new_list(original.references.iter().map(String::as_str)));
        }
    }
    message.write_to_vec()
}

/// Readers see the subject as given: a subject that looks like encoded words (RFC 2047) would be decoded, so it is
/// fully encoded.
fn subject(subject: &str) -> HeaderType<'_> {
    /// Bytes of a word: with four characters for three bytes, 12 more around them, and the header's name, a line has at
    /// most 76 characters.
    const WORD: usize = 36;
    if !subject.contains("=?") {
        return Text::new(subject).into();
    }
    let (mut words, mut rest) = (Vec::new(), subject);
    while !rest.is_empty() {
        let (word, after) = rest.split_at(rest.floor_char_boundary(WORD));
        words.push(format!("=?utf-8?B?{}?=", STANDARD.encode(word)));
        rest = after;
    }
    // White space between encoded words is not part of the text.
    Raw::new(words.join(" ")).into()
}

fn addresses(recipients: &[Recipient]) -> Address<'_> {
    Address::new_list(
        recipients
            .iter()
            .map(|recipient| Address::new_address(recipient.name.as_deref(), recipient.address.as_str()))
            .collect(),
    )
}

/// Converts all line breaks to CR LF.
fn lines(text: &str) -> Cow<'_, str> {
    if !text.contains(['\n', '\r']) {
        return Cow::Borrowed(text);
    }
    let unix = text.replace("\r\n", "\n").replace('\r', "\n");
    Cow::Owned(unix.replace('\n', "\r\n"))
}
