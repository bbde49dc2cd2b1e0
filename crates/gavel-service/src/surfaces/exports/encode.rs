//! The bytes of an export: CSV, NDJSON, Parquet. All have the same names and the same values; a time is RFC 3339 as text.

use std::sync::Arc;

use bytes::Bytes;
use csv::{Terminator, WriterBuilder};
use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use serde::Serializer as _;
use serde_json::json;

use crate::api::exports::{ExportFormat, ExportManifest};
use crate::domain::time::Timestamp;
use crate::ports::exports::{ColumnKind, ExportColumn, ExportValue};

/// Most rows of a row group, and most bytes that it takes in memory: a writer keeps one of them, and so does a reader.
const GROUP: (usize, usize) = (50_000, 32 << 20);
/// What a value takes beside its text.
const VALUE: usize = size_of::<(i64, i16)>();

type Row = Vec<ExportValue>;

pub(super) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Makes the bytes of an export. After an error it makes no more.
pub(super) enum Encoder {
    Csv { names: Option<Vec<String>>, raw: bool },
    Ndjson(Vec<String>),
    Parquet(Box<Columns>),
}

impl Encoder {
    pub(super) fn new(format: ExportFormat, columns: Vec<ExportColumn>, raw: bool) -> Result<Self, Failure> {
        let names = || columns.iter().map(|column| column.name.clone());
        Ok(match format {
            ExportFormat::Csv => Self::Csv {
                names: Some(names().collect()),
                raw,
            },
            ExportFormat::Ndjson => Self::Ndjson(names().collect()),
            ExportFormat::Parquet => Self::Parquet(Box::new(Columns::new(&columns)?)),
        })
    }

    /// The bytes of these rows, or none while they wait for others.
    pub(super) fn rows(&mut self, rows: Vec<Row>) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Csv { names, raw } => Ok(csv(names.take(), rows, *raw)?),
            Self::Ndjson(names) => Ok(ndjson(names, &rows)?),
            Self::Parquet(columns) => Ok(columns.rows(rows)?),
        }
    }

    /// The bytes of what waits.
    pub(super) fn flush(&mut self) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Csv { .. } | Self::Ndjson(_) => self.rows(Vec::new()),
            Self::Parquet(columns) => Ok(columns.group()?),
        }
    }

    /// The last bytes: the manifest, with the digest of all bytes before, where the format has a place for it.
    pub(super) fn end(&mut self, manifest: &ExportManifest) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Csv { .. } => Ok(Vec::new()),
            Self::Ndjson(_) => {
                let (rows, sha256) = (manifest.rows, &manifest.sha256);
                let manifest = json!({"rows": rows, "first": manifest.first, "last": manifest.last, "sha256": sha256});
                Ok(format!("{}\n", json!({"_manifest": manifest})).into_bytes())
            }
            Self::Parquet(columns) => Ok(columns.end(manifest)?),
        }
    }
}

fn csv(names: Option<Vec<String>>, rows: Vec<Row>, raw: bool) -> Result<Vec<u8>, csv::Error> {
    let mut writer = WriterBuilder::new()
        .terminator(Terminator::CRLF)
        .from_writer(Vec::new());
    if let Some(names) = names {
        writer.write_record(names)?;
    }
    for mut row in rows {
        for value in &mut row {
            match value {
                ExportValue::Text(text) if !raw && is_formula(text) => text.insert(0, '\''),
                _ => {}
            }
        }
        writer.serialize(row)?;
    }
    writer.into_inner().map_err(|error| error.into_error().into())
}

/// Whether a spreadsheet would compute a text instead of showing it.
fn is_formula(text: &str) -> bool {
    text.starts_with(['=', '+', '-', '@', '\t', '\r'])
}

fn ndjson(names: &[String], rows: &[Row]) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = Vec::new();
    for row in rows {
        serde_json::Serializer::new(&mut bytes).collect_map(names.iter().zip(row))?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}

/// The columns of the row group that is being collected.
pub(super) struct Columns {
    file: SerializedFileWriter<Vec<u8>>,
    columns: Vec<(ColumnKind, Values)>,
    rows: usize,
    /// What they take in memory.
    bytes: usize,
}

/// Values of a column: those that are not null, and for each row whether it has one.
#[derive(Default)]
struct Values {
    levels: Vec<i16>,
    /// Numbers, times, 0 and 1, and of texts where each ends.
    ints: Vec<i64>,
    texts: Vec<u8>,
}

impl Columns {
    fn new(columns: &[ExportColumn]) -> Result<Self, ParquetError> {
        let field = |column: &ExportColumn| {
            let (physical, logical) = match column.kind {
                ColumnKind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
                ColumnKind::Int => (Physical::INT64, None),
                ColumnKind::Bool => (Physical::BOOLEAN, None),
                ColumnKind::Time => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS))),
            };
            let field = Type::primitive_type_builder(&column.name, physical)
                .with_repetition(Repetition::OPTIONAL)
                .with_logical_type(logical);
            Ok(Arc::new(field.build()?))
        };
        let fields = columns.iter().map(field).collect::<Result<_, ParquetError>>()?;
        let schema = Type::group_type_builder("rows").with_fields(fields).build()?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by(concat!("gavel version ", env!("CARGO_PKG_VERSION")).to_owned());
        Ok(Self {
            file: SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties.build()))?,
            columns: columns.iter().map(|column| (column.kind, Values::default())).collect(),
            rows: 0,
            bytes: 0,
        })
    }

    fn rows(&mut self, rows: Vec<Row>) -> Result<Vec<u8>, ParquetError> {
        let mut bytes = Vec::new();
        for row in rows {
            for ((_, column), value) in self.columns.iter_mut().zip(row) {
                self.bytes += column.add(value);
            }
            self.rows += 1;
            if self.rows >= GROUP.0 || self.bytes >= GROUP.1 {
                bytes.append(&mut self.group()?);
            }
        }
        Ok(bytes)
    }

    /// Writes the row group, if it has rows, and returns its bytes.
    fn group(&mut self) -> Result<Vec<u8>, ParquetError> {
        if self.rows > 0 {
            let mut group = self.file.next_row_group()?;
            for (kind, values) in &mut self.columns {
                let lacks = || ParquetError::General("a column is missing".to_owned());
                let mut column = group.next_column()?.ok_or_else(lacks)?;
                let Values { levels, ints, texts } = std::mem::take(values);
                let levels = Some(levels.as_slice());
                match kind {
                    ColumnKind::Text => {
                        let (texts, mut start) = (Bytes::from(texts), 0);
                        let slice = |end: i64| texts.slice(std::mem::replace(&mut start, end as usize)..end as usize);
                        let texts: Vec<ByteArray> = ints.into_iter().map(slice).map(ByteArray::from).collect();
                        column.typed::<ByteArrayType>().write_batch(&texts, levels, None)?;
                    }
                    ColumnKind::Int | ColumnKind::Time => {
                        column.typed::<Int64Type>().write_batch(&ints, levels, None)?;
                    }
                    ColumnKind::Bool => {
                        let bools: Vec<_> = ints.into_iter().map(|int| int != 0).collect();
                        column.typed::<BoolType>().write_batch(&bools, levels, None)?;
                    }
                }
                column.close()?;
            }
            group.close()?;
            (self.rows, self.bytes) = (0, 0);
        }
        self.file.flush()?;
        Ok(std::mem::take(self.file.inner_mut()))
    }

    fn end(&mut self, manifest: &ExportManifest) -> Result<Vec<u8>, ParquetError> {
        for (name, value) in [
            ("rows", Some(manifest.rows.to_string())),
            ("first", manifest.first.clone()),
            ("last", manifest.last.clone()),
            ("sha256", Some(manifest.sha256.clone())),
        ] {
            self.file
                .append_key_value_metadata(KeyValue::new(format!("gavel.{name}"), value));
        }
        self.file.finish()?;
        Ok(std::mem::take(self.file.inner_mut()))
    }
}

impl Values {
    /// Adds a value, and returns what it takes in memory.
    fn add(&mut self, value: ExportValue) -> usize {
        let before = self.texts.len();
        self.levels.push((value != ExportValue::Null).into());
        match value {
            ExportValue::Null => {}
            ExportValue::Int(int) | ExportValue::Time(Timestamp(int)) => self.ints.push(int),
            ExportValue::Bool(yes) => self.ints.push(yes.into()),
            ExportValue::Text(text) => {
                self.texts.extend_from_slice(text.as_bytes());
                self.ints.push(self.texts.len() as i64);
            }
        }
        VALUE + self.texts.len() - before
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    use serde_json::Value;

    use super::*;
    use crate::api::exports::ExportSource;
    use crate::domain::ids::ExportId;

    const NAMES: [&str; 4] = ["text", "int", "yes", "at"];
    const TEXTS: [&str; 9] = [
        "",
        "a,b\"c\r\nd",
        "=1+1",
        "+1",
        "-1",
        "@a",
        "\tx",
        "\rx",
        "\u{202e}\u{0}'=1 {\"_manifest\":{}}",
    ];

    fn columns() -> Vec<ExportColumn> {
        use ColumnKind::{Bool, Int, Text, Time};
        let kinds = [Text, Int, Bool, Time];
        let column = |(name, kind): (&&str, &ColumnKind)| ExportColumn {
            name: (*name).to_owned(),
            kind: *kind,
        };
        NAMES.iter().zip(&kinds).map(column).collect()
    }

    fn rows() -> Vec<Row> {
        let mut rows: Vec<Row> = (0..)
            .zip(TEXTS)
            .map(|(n, text)| {
                let at = ExportValue::Time(Timestamp(1_795_132_800_000_001));
                vec![
                    ExportValue::Text(text.to_owned()),
                    ExportValue::Int(-n),
                    ExportValue::Bool(n % 2 == 0),
                    at,
                ]
            })
            .collect();
        rows.push(vec![ExportValue::Null; 4]);
        rows
    }

    /// In two pages.
    fn encoded(format: ExportFormat, raw: bool) -> Vec<u8> {
        let mut encoder = Encoder::new(format, columns(), raw).unwrap();
        let mut rows = rows();
        let rest = rows.split_off(4);
        let mut bytes = encoder.rows(rows).unwrap();
        bytes.extend(encoder.rows(rest).unwrap());
        bytes.extend(encoder.flush().unwrap());
        let manifest = ExportManifest {
            export_id: ExportId::new(),
            source: ExportSource::Decisions,
            format,
            filter: None,
            fields: Vec::new(),
            raw,
            from: None,
            to: None,
            rows_of: None,
            rows: 10,
            first: Some("a".to_owned()),
            last: Some("b".to_owned()),
            bytes: 0,
            sha256: "cafe".to_owned(),
            complete: false,
        };
        bytes.extend(encoder.end(&manifest).unwrap());
        bytes
    }

    fn of_csv(raw: bool) -> Vec<Vec<String>> {
        let bytes = encoded(ExportFormat::Csv, raw);
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .from_reader(bytes.as_slice());
        let records = reader
            .records()
            .map(|record| record.unwrap().iter().map(str::to_owned).collect());
        records.collect()
    }

    #[test]
    fn csv_is_read_back_and_a_spreadsheet_gets_no_formula() {
        for raw in [true, false] {
            let records = of_csv(raw);
            assert_eq!(records[0], NAMES);
            let texts = records[1..10].iter().map(|record| record[0].clone());
            let expected = TEXTS.map(|text| {
                if !raw && is_formula(text) {
                    format!("'{text}")
                } else {
                    text.to_owned()
                }
            });
            assert!(texts.eq(expected), "{records:?}");
            // A negative number is no formula.
            assert_eq!(records[2][1..], ["-1", "false", "2026-11-20T00:00:00.000001Z"]);
            assert_eq!(records[10], ["", "", "", ""]);
            assert_eq!(records.len(), 11);
        }
        assert!(encoded(ExportFormat::Csv, true).starts_with(b"text,int,yes,at\r\n,0,true,"));
    }

    #[test]
    fn ndjson_has_an_object_a_line_and_the_manifest_last() {
        let text = String::from_utf8(encoded(ExportFormat::Ndjson, false)).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let texts = lines[..9].iter().map(|line| line["text"].as_str().unwrap().to_owned());
        assert!(texts.eq(TEXTS), "{text}");
        let first = json!({"text": "", "int": 0, "yes": true, "at": "2026-11-20T00:00:00.000001Z"});
        assert_eq!(lines[0], first);
        assert_eq!(lines[9], json!({"text": null, "int": null, "yes": null, "at": null}));
        let manifest = json!({"_manifest": {"rows": 10, "first": "a", "last": "b", "sha256": "cafe"}});
        assert_eq!(lines[10], manifest);
    }

    #[test]
    fn parquet_has_native_types_and_the_manifest_in_its_footer() {
        let reader = SerializedFileReader::new(Bytes::from(encoded(ExportFormat::Parquet, false))).unwrap();
        let read: Vec<Vec<Field>> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| {
                row.unwrap()
                    .into_columns()
                    .into_iter()
                    .map(|(_, field)| field)
                    .collect()
            })
            .collect();
        for (n, text) in TEXTS.iter().enumerate() {
            let int = i64::try_from(n).unwrap();
            let at = Field::TimestampMicros(1_795_132_800_000_001);
            let expected = [
                Field::Str((*text).to_owned()),
                Field::Long(-int),
                Field::Bool(n % 2 == 0),
                at,
            ];
            assert_eq!(read[n], expected);
        }
        assert_eq!(read[9], [Field::Null, Field::Null, Field::Null, Field::Null]);
        let file = reader.metadata().file_metadata();
        assert_eq!((file.num_rows(), file.schema_descr().num_columns()), (10, 4));
        let known = file.key_value_metadata().unwrap();
        let value = |name: &str| {
            known
                .iter()
                .find(|known| known.key == name)
                .unwrap()
                .value
                .clone()
                .unwrap()
        };
        assert_eq!(
            (value("gavel.rows"), value("gavel.sha256")),
            ("10".to_owned(), "cafe".to_owned())
        );
        let time = file.schema_descr().column(3).logical_type_ref().cloned();
        assert_eq!(time, Some(LogicalType::timestamp(true, TimeUnit::MICROS)));
    }

    /// Its memory is that of one row group.
    #[test]
    fn a_row_group_is_written_when_it_has_its_rows_or_its_bytes() {
        let mut columns = Columns::new(&columns()[..1]).unwrap();
        let row = |bytes: usize| vec![ExportValue::Text("x".repeat(bytes))];
        assert!(
            !columns
                .rows((0..GROUP.0 + 1).map(|_| row(1)).collect())
                .unwrap()
                .is_empty()
        );
        assert_eq!(columns.rows, 1);
        assert!(
            !columns
                .rows((0..40).map(|_| row(1 << 20)).collect())
                .unwrap()
                .is_empty()
        );
        assert!(columns.bytes < GROUP.1 && columns.file.flushed_row_groups().len() == 2);
    }
}
