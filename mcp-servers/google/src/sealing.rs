//! Encryption of secrets in the database: AES-256-GCM with the operator's key, bound to the kind of secret and its
//! user.

use std::fmt;
use std::sync::Arc;

use anyhow::{Context, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use gavel_mcp_base::{Secret, UserId};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest, Sha256};

/// The prefix of sealed text, so that a future format can be recognized.
const VERSION: &str = "1";

/// Keys that seal and open.
#[derive(Clone)]
pub(crate) struct Sealer {
    keys: Arc<[Key]>,
}

struct Key {
    /// Identifies the key in sealed text, and reveals nothing about it.
    id: String,
    key: LessSafeKey,
}

/// The kind of a secret; one kind cannot be passed off as another.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    RefreshToken,
    Verifier,
}

/// Why a secret cannot be sealed or opened. It reveals nothing about the content.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SealError {
    #[error("it was sealed with a key that GOOGLE_TOKEN_KEY does not have")]
    UnknownKey,
    #[error("it was changed, or belongs to another user")]
    Forged,
    #[error("the system's random numbers or its cipher failed")]
    System,
}

/// An opened secret.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) secret: Secret,
    /// Whether it was sealed with an outdated key.
    pub(crate) outdated: bool,
}

impl Sealer {
    /// Parses keys of 32 bytes in base64 or hex, separated by commas or white space; the first one seals.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let words = text.split(|character: char| character == ',' || character.is_whitespace());
        let keys: Vec<_> = words
            .filter(|word| !word.is_empty())
            .map(Key::parse)
            .collect::<Result<_, _>>()?;
        ensure!(!keys.is_empty(), "it contains no key");
        Ok(Self { keys: keys.into() })
    }

    pub(crate) fn seal(&self, kind: Kind, user: &UserId, secret: &Secret) -> Result<String, SealError> {
        let Some(Key { id, key }) = self.keys.first() else {
            return Err(SealError::System);
        };
        let nonce: [u8; NONCE_LEN] = random()?;
        let mut sealed = secret.bytes().to_vec();
        let bound = bound_to(kind, user);
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(bound), &mut sealed)
            .map_err(|_| SealError::System)?;
        Ok(format!(
            "{VERSION}.{id}.{}.{}",
            URL_SAFE_NO_PAD.encode(nonce),
            URL_SAFE_NO_PAD.encode(sealed)
        ))
    }

    pub(crate) fn open(&self, kind: Kind, user: &UserId, sealed: &str) -> Result<Opened, SealError> {
        let parts: Vec<&str> = sealed.split('.').collect();
        let [VERSION, id, nonce, sealed] = parts[..] else {
            return Err(SealError::Forged);
        };
        let decode = |text| URL_SAFE_NO_PAD.decode(text).map_err(|_| SealError::Forged);
        let nonce = Nonce::try_assume_unique_for_key(&decode(nonce)?).map_err(|_| SealError::Forged)?;
        let mut sealed = decode(sealed)?;
        let place = self
            .keys
            .iter()
            .position(|key| key.id == id)
            .ok_or(SealError::UnknownKey)?;
        let opened = self.keys[place]
            .key
            .open_in_place(nonce, Aad::from(bound_to(kind, user)), &mut sealed)
            .map_err(|_| SealError::Forged)?;
        let text = std::str::from_utf8(opened).map_err(|_| SealError::Forged)?;
        Ok(Opened {
            secret: Secret::new(text),
            outdated: place > 0,
        })
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealer({} keys)", self.keys.len())
    }
}

impl Key {
    fn parse(text: &str) -> anyhow::Result<Self> {
        // 64 hexadecimal digits are also valid base64, but of 48 bytes.
        let bytes = [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD]
            .iter()
            .find_map(|base64| base64.decode(text).ok().filter(|bytes| bytes.len() == 32))
            .or_else(|| hex::decode(text).ok().filter(|bytes| bytes.len() == 32))
            .context("a key must have 32 bytes in base64 or hex (openssl rand -base64 32 makes one)")?;
        let key = UnboundKey::new(&AES_256_GCM, &bytes)
            .ok()
            .context("a key was rejected")?;
        Ok(Self {
            id: hex::encode(&Sha256::digest(&bytes)[..4]),
            key: LessSafeKey::new(key),
        })
    }
}

fn bound_to(kind: Kind, user: &UserId) -> Vec<u8> {
    let kind = match kind {
        Kind::RefreshToken => "refresh_token",
        Kind::Verifier => "verifier",
    };
    format!("{VERSION}\0{kind}\0{}", user.as_str()).into_bytes()
}

/// Random bytes of cryptographic quality.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], SealError> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| SealError::System)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    const NEW: &str = "0101010101010101010101010101010101010101010101010101010101010101";

    fn anna() -> UserId {
        UserId::parse("anna").expect("an id")
    }

    fn sealer(keys: &str) -> Sealer {
        Sealer::parse(keys).expect("keys")
    }

    #[test]
    fn what_is_sealed_is_opened_by_the_same_key_for_the_same_user_and_kind_alone() {
        let (sealer, token) = (sealer(OLD), Secret::new("1//refresh"));
        let sealed = sealer.seal(Kind::RefreshToken, &anna(), &token).expect("sealed");
        assert!(!sealed.contains("refresh"));
        let opened = sealer.open(Kind::RefreshToken, &anna(), &sealed).expect("opened");
        assert!(opened.secret == token && !opened.outdated);
        let ben = UserId::parse("ben").expect("an id");
        assert!(matches!(
            sealer.open(Kind::RefreshToken, &ben, &sealed),
            Err(SealError::Forged)
        ));
        assert!(matches!(
            sealer.open(Kind::Verifier, &anna(), &sealed),
            Err(SealError::Forged)
        ));
        let again = sealer.seal(Kind::RefreshToken, &anna(), &token).expect("sealed");
        assert_ne!(sealed, again, "a nonce was used twice");
    }

    #[test]
    fn a_new_key_in_front_seals_and_the_old_one_still_opens() {
        let sealed = sealer(OLD)
            .seal(Kind::RefreshToken, &anna(), &Secret::new("x"))
            .expect("sealed");
        let both = sealer(&format!("{NEW},{OLD}"));
        assert!(
            both.open(Kind::RefreshToken, &anna(), &sealed)
                .expect("opened")
                .outdated
        );
        assert!(matches!(
            sealer(NEW).open(Kind::RefreshToken, &anna(), &sealed),
            Err(SealError::UnknownKey)
        ));
        let again = both
            .seal(Kind::RefreshToken, &anna(), &Secret::new("x"))
            .expect("sealed");
        assert!(sealer(NEW).open(Kind::RefreshToken, &anna(), &again).is_ok());
    }

    #[test]
    fn a_changed_byte_and_a_key_of_another_length_are_refused() {
        let sealer = sealer(OLD);
        let sealed = sealer
            .seal(Kind::RefreshToken, &anna(), &Secret::new("x"))
            .expect("sealed");
        let last = if sealed.ends_with('A') { 'B' } else { 'A' };
        let (start, _) = sealed.split_at(sealed.len() - 8);
        let forged = format!("{start}{}", last.to_string().repeat(8));
        assert!(matches!(
            sealer.open(Kind::RefreshToken, &anna(), &forged),
            Err(SealError::Forged)
        ));
        for invalid in ["", " , ", "c2hvcnQ=", "0101", "canary"] {
            let error = Sealer::parse(invalid).expect_err(invalid);
            assert!(!format!("{error:?}").contains("canary"));
        }
    }
}
