//! What `launch.sh` prints: the state of a script, its output, and the credentials that must not be in it.

use super::{KEPT, complete};
use crate::engine::exec::Written;

/// What was printed.
#[derive(Debug)]
pub(super) enum Printed {
    Frame(Frame),
    /// The script was not started; the text says why.
    Fault(String),
}

/// How a script ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With this status, as a shell shows it: 128 and the number of a signal for a signal.
    Exited(u8),
    /// Its supervisor is gone, because the container was stopped or ran out of processes.
    Lost,
    /// It was claimed by an attempt that ended before it started anything.
    NeverStarted,
}

/// A script's result.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) ending: Ending,
    /// The digest of the call that started the script.
    pub(crate) digest: String,
    /// Why the script was ended from outside: `timeout`, `cancelled` or `interrupted`; else empty.
    pub(crate) stop: String,
    /// Whether the container was restarted, since the script could not be ended otherwise.
    pub(crate) has_restarted: bool,
    /// In milliseconds, if it is known when the script ended.
    pub(crate) duration_ms: Option<u64>,
    /// The end of each stream, with a margin for the redactor.
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
    /// Whether the streams had more.
    pub(crate) is_truncated: bool,
    /// Whether a part of the streams is lost because the disk was full.
    pub(crate) is_disk_full: bool,
    /// The lines of the credential file.
    pub(crate) secrets: Vec<String>,
}

/// The printed result; `None` if it is incomplete.
pub(super) fn parse(written: &Written, key: &str) -> Option<Printed> {
    if let Some(fault) = written.out.strip_prefix(b"fault ") {
        let fault = fault.strip_suffix(b"\n")?;
        return Some(Printed::Fault(String::from_utf8_lossy(fault).into_owned()));
    }
    let (out, err) = complete(written, key)?;
    let end = out.windows(2).position(|pair| pair == b"\n\n")?;
    let header = String::from_utf8_lossy(out.get(..end)?).into_owned();
    let lines: Vec<_> = header
        .lines()
        .map(|line| line.split_once(' ').unwrap_or((line, "")))
        .collect();
    let value = |name: &str| lines.iter().find(|(found, _)| *found == name).map(|(_, value)| *value);
    let ending = match value("state")? {
        "end" => Ending::Exited(value("code")?.parse().ok()?),
        "never" => Ending::NeverStarted,
        _ => Ending::Lost,
    };
    // The size of a stream that was cut before has a gigabyte added.
    let is_longer = |name| {
        value(name)
            .and_then(|bytes| bytes.parse::<u64>().ok())
            .is_some_and(|bytes| bytes > KEPT as u64)
    };
    let is_disk_full = value("full").is_some_and(|full| !full.is_empty());
    let seconds = |name| value(name).and_then(|text| text.parse::<f64>().ok());
    let duration = seconds("began")
        .zip(seconds("ended"))
        .map(|(began, ended)| (ended - began) * 1000.0);
    Some(Printed::Frame(Frame {
        ending,
        digest: value("digest").unwrap_or_default().to_owned(),
        stop: value("stop").unwrap_or_default().to_owned(),
        has_restarted: value("restart").is_some_and(|restart| !restart.is_empty()),
        duration_ms: duration
            .filter(|ms| ending != Ending::Lost && *ms >= 0.0)
            .map(|ms| ms.round() as u64),
        out: out.get(end + 2..)?.to_vec(),
        err: err.to_vec(),
        is_truncated: is_longer("out") || is_longer("err") || is_disk_full,
        is_disk_full,
        secrets: lines
            .iter()
            .filter(|(name, _)| *name == "secret")
            .map(|(_, secret)| (*secret).to_owned())
            .collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(out: &str, err: &str) -> Written {
        Written {
            out: out.as_bytes().to_vec(),
            err: err.as_bytes().to_vec(),
        }
    }

    #[test]
    fn a_whole_result_is_read_and_a_part_of_one_is_not() {
        let out = "state end\ncode 3\nended 12.50\ndigest d\nbegan 10.00\nstop \nrestart \nfull \nout 1073741830\nerr 1\n\
                   secret a b\n\nhi\n\n\ngavel end k\n";
        let err = "e\ngavel end k\n";
        let Some(Printed::Frame(frame)) = parse(&written(out, err), "k") else {
            panic!("a result");
        };
        assert_eq!(frame.ending, Ending::Exited(3));
        assert_eq!(frame.duration_ms, Some(2500));
        assert_eq!(
            (frame.out.as_slice(), frame.err.as_slice()),
            (&b"hi\n\n"[..], &b"e"[..])
        );
        assert!(frame.is_truncated && !frame.has_restarted && !frame.is_disk_full);
        assert_eq!(frame.secrets, ["a b"]);
        for length in 0..out.len() {
            assert!(parse(&written(&out[..length], err), "k").is_none(), "{length}");
        }
        assert!(parse(&written(out, "e"), "k").is_none());
        assert!(parse(&written(out, err), "j").is_none());
    }

    #[test]
    fn a_fault_is_read() {
        let Some(Printed::Fault(fault)) = parse(&written("fault missing setsid\n", ""), "k") else {
            panic!("a fault");
        };
        assert_eq!(fault, "missing setsid");
    }
}
