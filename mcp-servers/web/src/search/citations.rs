//! Where an answer cites its sources. Gemini counts in bytes of UTF-8.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A part of the answer, as Gemini describes it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Segment {
    pub(super) part_index: usize,
    pub(super) start_index: usize,
    pub(super) end_index: usize,
    pub(super) text: String,
}

/// The places of the citations, each with its sources, in ascending order. A segment whose text is not in the answer is
/// left out: a citation must not be in another place than Gemini meant.
pub(super) fn citations(
    answer: &str,
    starts: &[usize],
    supports: impl Iterator<Item = (Segment, Vec<usize>)>,
) -> Vec<(usize, Vec<usize>)> {
    let mut places: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (segment, cited) in supports {
        let Some(end) = end(answer, starts, &segment).filter(|_| !cited.is_empty()) else {
            continue;
        };
        let place = places.entry(end).or_default();
        for source in cited {
            if !place.contains(&source) {
                place.push(source);
            }
        }
    }
    places.into_iter().collect()
}

/// Where the segment ends in the answer. Its offsets count from the beginning of its part.
fn end(answer: &str, starts: &[usize], segment: &Segment) -> Option<usize> {
    let first = starts.get(segment.part_index).copied().unwrap_or_default();
    let (start, end) = (
        first.checked_add(segment.start_index)?,
        first.checked_add(segment.end_index)?,
    );
    match answer.get(start..end) {
        Some(text) if segment.text.is_empty() || text == segment.text => Some(end),
        _ if segment.text.is_empty() => None,
        _ => answer.find(&segment.text).map(|found| found + segment.text.len()),
    }
}

/// The answer with `[1]` for the first source, and so on, at each place.
pub(super) fn inserted(answer: &str, citations: &[(usize, Vec<usize>)]) -> String {
    let mut cited = String::new();
    let mut done = 0;
    for (place, sources) in citations {
        cited.push_str(answer.get(done..*place).unwrap_or_default());
        for source in sources {
            cited.push_str(&format!("[{}]", source + 1));
        }
        done = *place;
    }
    cited.push_str(answer.get(done..).unwrap_or_default());
    cited
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(start_index: usize, end_index: usize, text: &str) -> Segment {
        Segment {
            start_index,
            end_index,
            text: text.to_owned(),
            ..Segment::default()
        }
    }

    #[test]
    fn citations_are_placed_by_bytes_of_utf_8() {
        let answer = "Zürich hat 安 und mehr. Ende.";
        let first = "Zürich hat 安 und mehr.";
        let supports = [
            (segment(0, first.len(), first), vec![0, 2]),
            (segment(0, first.len(), first), vec![2, 1]),
            // In characters and not in bytes: the text says where it is.
            (segment(24, 29, "Ende."), vec![1]),
            (segment(0, 3, "Nothing"), vec![0]),
            (segment(1, 2, ""), vec![0]),
            (segment(0, 9_999, ""), vec![0]),
            (segment(usize::MAX, 1, ""), vec![0]),
            (segment(0, 1, "Z"), vec![]),
        ];
        let found = citations(answer, &[0], supports.into_iter());
        assert_eq!(inserted(answer, &found), "Zürich hat 安 und mehr.[1][3][2] Ende.[2]");
        let part = Segment {
            part_index: 2,
            ..segment(0, 3, "two")
        };
        let found = citations("one two", &[0, 0, 4], [(part, vec![4])].into_iter());
        assert_eq!(inserted("one two", &found), "one two[5]");
    }
}
