//! Draws on the server, as SVG: columns, lines and bars. Places are percentages, so that a chart has the width of its page
//! while its text keeps its size. Each part has a title; the table beside a chart has the same numbers.

use maud::{Markup, html};

use super::words;

/// Numbers over time that have one colour.
pub(crate) struct Series {
    /// The class that gives the colour.
    pub(crate) class: &'static str,
    pub(crate) name: &'static str,
    /// One for each column.
    pub(crate) values: Vec<Option<f64>>,
    /// The decisions behind it, if not all.
    pub(crate) filter: Option<String>,
}

/// Numbers over time.
pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    /// Whether the numbers of a column are parts of a whole, and drawn on top of one another; else each series is a line, over
    /// powers of ten.
    pub(crate) stacked: bool,
    pub(crate) columns: &'a [String],
    pub(crate) series: &'a [Series],
    /// What happened within a column, each with the column.
    pub(crate) marks: &'a [(usize, String)],
    /// A number as text.
    pub(crate) tell: &'a dyn Fn(f64) -> String,
    /// The address of the decisions of a column, with this filter.
    pub(crate) link: &'a dyn Fn(usize, Option<&str>) -> String,
}

/// Where numbers are, from the lowest line to the highest.
enum Scale {
    /// From 0 to this number.
    Even(f64),
    /// Between these powers of ten: lines can be of very different size.
    Powers(f64, f64),
}

impl Scale {
    /// Where the number is, 0 to 1.
    fn share(&self, value: f64) -> f64 {
        match self {
            Self::Even(greatest) => value / greatest,
            Self::Powers(first, last) => ((value.max(1.0).log10() - first) / (last - first)).max(0.0),
        }
    }

    /// The numbers with a line.
    fn lines(&self) -> Vec<f64> {
        match self {
            Self::Even(greatest) => vec![*greatest, greatest / 2.0, 0.0],
            Self::Powers(first, last) => (*first as i32..=*last as i32).map(|power| 10_f64.powi(power)).collect(),
        }
    }
}

/// Where the drawing begins below the greatest number, and how high it is, in percent.
const TOP: f64 = 10.0;
const HEIGHT: f64 = 78.0;
/// The narrowest part, in percent of the width.
const NARROWEST: f64 = 0.4;
/// The most names below the columns.
const NAMES: usize = 4;

impl Chart<'_> {
    /// The drawing.
    pub(crate) fn svg(&self) -> Markup {
        let scale = self.scale();
        let y = |value: f64| TOP + HEIGHT * (1.0 - scale.share(value));
        let width = 100.0 / self.columns.len().max(1) as f64;
        let step = self.columns.len().div_ceil(NAMES).max(1);
        html! {
            svg.chart role="img" aria-label=(self.title) {
                @for (at, value) in scale.lines().into_iter().enumerate() {
                    line.grid x1="0" x2="100%" y1=(percent(y(value))) y2=(percent(y(value))) {}
                    // Half of a whole may be no number of decisions.
                    @if at == 0 || !self.stacked { text x="0" y=(percent(y(value) - 2.0)) { (words::text(&(self.tell)(value))) } }
                }
                @for column in 0..self.columns.len() {
                    @if self.stacked { (self.stack(column, width, &y)) } @else { (self.points(column, width, &y)) }
                    @if column % step == 0 { text x=(percent(column as f64 * width)) y="98%" { (words::text(&self.columns[column])) } }
                }
                @for (column, name) in self.marks {
                    @let x = percent((*column as f64 + 0.5) * width);
                    line.mark x1=(x) x2=(x) y1=(percent(TOP)) y2=(percent(TOP + HEIGHT)) { title { (words::text(name)) } }
                }
            }
        }
    }

    fn scale(&self) -> Scale {
        let of = |column: usize| self.series.iter().filter_map(move |series| series.values[column]);
        if self.stacked {
            let sums = (0..self.columns.len()).map(|column| of(column).sum());
            return Scale::Even(round_up(sums.fold(0.0, f64::max)));
        }
        let powers = (0..self.columns.len()).flat_map(of).map(|value| value.max(1.0).log10());
        let (least, greatest) = powers.fold((f64::MAX, 0.0), |(least, greatest), power| {
            (power.min(least), power.max(greatest))
        });
        let first = if least > greatest { 0.0 } else { least.floor() };
        Scale::Powers(first, greatest.ceil().max(first + 1.0))
    }

    fn stack(&self, column: usize, width: f64, y: &dyn Fn(f64) -> f64) -> Markup {
        let values = self
            .series
            .iter()
            .map(|series| series.values[column].filter(|value| *value > 0.0));
        let stacked = self.series.iter().zip(values).scan(0.0, |top, (series, value)| {
            let below = *top;
            *top += value.unwrap_or_default();
            Some((series, value, below, *top))
        });
        html! {
            @for (series, value, below, top) in stacked {
                @if let Some(value) = value {
                    rect.(series.class) x=(percent(width.mul_add(column as f64, width * 0.08))) width=(percent(width * 0.84))
                        y=(percent(y(top))) height=(percent(y(below) - y(top))) { (self.title_of(column, series, value)) }
                }
            }
        }
    }

    fn points(&self, column: usize, width: f64, y: &dyn Fn(f64) -> f64) -> Markup {
        let x = |column: usize| percent((column as f64 + 0.5) * width);
        html! {
            @for series in self.series {
                @if let Some(value) = series.values[column] {
                    @if let Some(before) = column.checked_sub(1).and_then(|before| series.values[before]) {
                        line.line.(series.class) x1=(x(column - 1)) y1=(percent(y(before))) x2=(x(column)) y2=(percent(y(value))) {}
                    }
                    circle.(series.class) cx=(x(column)) cy=(percent(y(value))) r="3.5" { (self.title_of(column, series, value)) }
                }
            }
        }
    }

    fn title_of(&self, column: usize, series: &Series, value: f64) -> Markup {
        html! { title { (words::text(&self.columns[column])) ", " (series.name) ": " (words::text(&(self.tell)(value))) } }
    }

    /// The drawing with its heading, legend and table.
    pub(crate) fn figure(&self, id: &str) -> Markup {
        html! {
            figure.chart aria-labelledby=(id) {
                figcaption {
                    h2 #(id) { (self.title) }
                    ul.legend { @for series in self.series { li { svg.key aria-hidden="true" { rect.(series.class) width="100%" height="100%" {} } (series.name) } } }
                }
                (self.svg())
                details {
                    summary { "Table" }
                    div.wide tabindex="0" role="region" aria-label={ (self.title) " as a table" } {
                        table.numbers {
                            caption { (self.title) }
                            thead { tr { th scope="col" { "Time" } @for series in self.series { th.number scope="col" { (series.name) } } } }
                            tbody {
                                @for (column, name) in self.columns.iter().enumerate() {
                                    tr {
                                        th scope="row" { (words::text(name)) }
                                        @for series in self.series {
                                            td.number {
                                                @if let Some(value) = series.values[column] { a href=((self.link)(column, series.filter.as_deref())) { ((self.tell)(value)) } }
                                            }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A bar beside its number: where it begins and how long it is, as shares of the width.
pub(crate) fn bar(class: &str, begin: f64, length: f64, title: &str) -> Markup {
    bars(&[(class, begin, length, title.to_owned())])
}

/// Bars in one line, each with its class, begin, length and title.
pub(crate) fn bars(parts: &[(&str, f64, f64, String)]) -> Markup {
    html! {
        svg.share aria-hidden="true" {
            @for (class, begin, length, title) in parts {
                @let length = (length * 100.0).clamp(NARROWEST, 100.0);
                @let begin = (begin * 100.0).clamp(0.0, 100.0 - length);
                rect.(class) x=(percent(begin)) width=(percent(length)) height="100%" { title { (words::text(title)) } }
            }
        }
    }
}

fn percent(value: f64) -> String {
    format!("{value:.2}%")
}

/// The next of 1, 2, 5, 10, 20 …, also below 1.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= value).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart<'a>(
        stacked: bool,
        columns: &'a [String],
        series: &'a [Series],
        marks: &'a [(usize, String)],
    ) -> Chart<'a> {
        Chart {
            title: "Outcomes",
            stacked,
            columns,
            series,
            marks,
            tell: &|value| format!("{value}"),
            link: &|_, _| String::new(),
        }
    }

    fn series(values: [Option<f64>; 2]) -> Series {
        Series {
            class: "s1",
            name: "success",
            values: values.to_vec(),
            filter: None,
        }
    }

    #[test]
    fn columns_are_stacked_from_the_bottom_and_each_part_has_a_title() {
        let columns = ["<Mon>".to_owned(), "Tue".to_owned()];
        let error = Series {
            class: "s4",
            name: "error",
            values: vec![Some(1.0), None],
            filter: None,
        };
        let marks = [(1, "model <x>\u{202e}".to_owned())];
        let drawn = chart(true, &columns, &[series([Some(3.0), Some(5.0)]), error], &marks)
            .svg()
            .into_string();
        assert_eq!(
            drawn,
            concat!(
                r#"<svg class="chart" role="img" aria-label="Outcomes">"#,
                r#"<line class="grid" x1="0" x2="100%" y1="10.00%" y2="10.00%"></line>"#,
                r#"<text x="0" y="8.00%">5</text>"#,
                r#"<line class="grid" x1="0" x2="100%" y1="49.00%" y2="49.00%"></line>"#,
                r#"<line class="grid" x1="0" x2="100%" y1="88.00%" y2="88.00%"></line>"#,
                r#"<rect class="s1" x="4.00%" width="42.00%" y="41.20%" height="46.80%"><title>&lt;Mon&gt;, success: 3</title></rect>"#,
                r#"<rect class="s4" x="4.00%" width="42.00%" y="25.60%" height="15.60%"><title>&lt;Mon&gt;, error: 1</title></rect>"#,
                r#"<text x="0.00%" y="98%">&lt;Mon&gt;</text>"#,
                r#"<rect class="s1" x="54.00%" width="42.00%" y="10.00%" height="78.00%"><title>Tue, success: 5</title></rect>"#,
                r#"<text x="50.00%" y="98%">Tue</text>"#,
                r#"<line class="mark" x1="75.00%" x2="75.00%" y1="10.00%" y2="88.00%"><title>model &lt;x&gt;"#,
                r#"<span class="hidden-char" title="turns the writing direction to the left">U+202E</span></title></line></svg>"#,
            )
        );
    }

    #[test]
    fn a_line_has_a_gap_where_there_is_no_number() {
        let columns = ["a", "b", "c"].map(str::to_owned);
        let gap = Series {
            class: "s1",
            name: "p50",
            values: vec![Some(1.0), None, Some(2.0)],
            filter: None,
        };
        let drawn = chart(false, &columns, &[gap], &[]).svg().into_string();
        assert!(!drawn.contains(r#"class="line"#), "{drawn}");
        assert_eq!(drawn.matches("<circle").count(), 2);
        let drawn = chart(false, &columns[..2], &[series([Some(10.0), Some(1000.0)])], &[])
            .svg()
            .into_string();
        let line = r#"<line class="line s1" x1="25.00%" y1="88.00%" x2="75.00%" y2="10.00%"></line>"#;
        assert!(drawn.contains(line), "{drawn}");
    }

    #[test]
    fn a_bar_can_be_seen_and_stays_within_its_line() {
        let drawn = |begin, length| bar("model", begin, length, "1 ms").into_string();
        for (begin, length, place) in [
            (0.0, 0.5, r#"x="0.00%" width="50.00%""#),
            (0.25, 0.0, r#"x="25.00%" width="0.40%""#),
            (1.0, 0.001, r#"x="99.60%" width="0.40%""#),
            (0.9, 0.4, r#"x="60.00%" width="40.00%""#),
        ] {
            let drawn = drawn(begin, length);
            assert!(drawn.contains(place), "{drawn}");
        }
    }

    #[test]
    fn the_scale_ends_at_a_round_number() {
        for (value, top) in [(0.0, 1.0), (0.3, 0.5), (1.0, 1.0), (7.0, 10.0), (1001.0, 2000.0)] {
            assert!((round_up(value) - top).abs() < 1e-9, "{value}");
        }
    }
}
