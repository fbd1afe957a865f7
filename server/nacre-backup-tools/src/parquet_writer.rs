//! Files of Apache Parquet, written row by row into groups, by the crate `parquet`.

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use std::io::{self, Write};
use std::sync::Arc;

/// Bytes of values after which a group of rows is written: memory does not grow with the file.
const GROUP_BYTES: usize = 32 << 20;
/// Rows after which it is, too.
const GROUP_ROWS_MAX: usize = 1 << 20;

/// Type of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text in UTF-8.
    Text,
    /// Whole numbers of 64 bits.
    Integer,
    /// Floating-point numbers of 64 bits.
    Double,
    /// True or false.
    Boolean,
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// None.
    Null,
    /// Text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A floating-point number.
    Double(f64),
    /// True or false.
    Boolean(bool),
}

/// The values of a column in the group that is being filled.
enum Values {
    Text(Vec<ByteArray>),
    Integer(Vec<i64>),
    Double(Vec<f64>),
    Boolean(Vec<bool>),
}

struct Column {
    values: Values,
    /// For each row 1 if it has a value, otherwise 0.
    levels: Vec<i16>,
}

impl Column {
    fn of(kind: Kind) -> Column {
        let values = match kind {
            Kind::Text => Values::Text(Vec::new()),
            Kind::Integer => Values::Integer(Vec::new()),
            Kind::Double => Values::Double(Vec::new()),
            Kind::Boolean => Values::Boolean(Vec::new()),
        };
        Column { values, levels: Vec::new() }
    }

    /// Adds a cell. Returns how many bytes its value has.
    fn push(&mut self, cell: &Cell) -> usize {
        let bytes = match (&mut self.values, cell) {
            (Values::Text(values), Cell::Text(text)) => {
                values.push(text.as_str().into());
                text.len()
            }
            (Values::Integer(values), Cell::Integer(number)) => {
                values.push(*number);
                size_of::<i64>()
            }
            (Values::Double(values), Cell::Double(number)) => {
                values.push(*number);
                size_of::<f64>()
            }
            (Values::Boolean(values), Cell::Boolean(is_true)) => {
                values.push(*is_true);
                size_of::<bool>()
            }
            _ => {
                self.levels.push(0);
                return 0;
            }
        };
        self.levels.push(1);
        bytes
    }

    /// Writes the values of the group, and begins the next one.
    fn flush(&mut self, writer: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let levels = Some(&self.levels[..]);
        match &self.values {
            Values::Text(values) => {
                writer.typed::<ByteArrayType>().write_batch(values, levels, None)
            }
            Values::Integer(values) => {
                writer.typed::<Int64Type>().write_batch(values, levels, None)
            }
            Values::Double(values) => {
                writer.typed::<DoubleType>().write_batch(values, levels, None)
            }
            Values::Boolean(values) => writer.typed::<BoolType>().write_batch(values, levels, None),
        }?;
        self.levels.clear();
        match &mut self.values {
            Values::Text(values) => values.clear(),
            Values::Integer(values) => values.clear(),
            Values::Double(values) => values.clear(),
            Values::Boolean(values) => values.clear(),
        }
        Ok(())
    }
}

/// Writes a file. All columns are optional and flat.
pub(crate) struct ParquetWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    columns: Vec<Column>,
    rows: usize,
    bytes: usize,
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Begins a file with columns of these names.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn new(output: W, columns: &[(String, Kind)]) -> io::Result<ParquetWriter<W>> {
        let fields = columns.iter().map(|(name, kind)| field(name, *kind).map(Arc::new));
        let fields = fields.collect::<Result<_, _>>().map_err(io::Error::other)?;
        let schema = Type::group_type_builder("schema").with_fields(fields).build();
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("nacre version ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let schema = Arc::new(schema.map_err(io::Error::other)?);
        let file = SerializedFileWriter::new(output, schema, Arc::new(properties));
        let columns = columns.iter().map(|(_, kind)| Column::of(*kind)).collect();
        Ok(ParquetWriter { file: file.map_err(io::Error::other)?, columns, rows: 0, bytes: 0 })
    }

    /// Adds a row. It has a cell for each column; one of another type than its column is null.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn write(&mut self, row: &[Cell]) -> io::Result<()> {
        for (column, cell) in self.columns.iter_mut().zip(row) {
            self.bytes += column.push(cell);
        }
        self.rows += 1;
        if self.rows < GROUP_ROWS_MAX && self.bytes < GROUP_BYTES {
            return Ok(());
        }
        self.flush().map_err(io::Error::other)
    }

    /// Ends the file; returns the output.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        if self.rows > 0 {
            self.flush().map_err(io::Error::other)?;
        }
        self.file.into_inner().map_err(io::Error::other)
    }

    fn flush(&mut self) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        for column in &mut self.columns {
            let mut writer = group.next_column()?.expect("the schema has a column for each");
            column.flush(&mut writer)?;
            writer.close()?;
        }
        group.close()?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }
}

fn field(name: &str, kind: Kind) -> Result<Type, ParquetError> {
    let (physical, logical) = match kind {
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Integer => (Physical::INT64, None),
        Kind::Double => (Physical::DOUBLE, None),
        Kind::Boolean => (Physical::BOOLEAN, None),
    };
    Type::primitive_type_builder(name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};

    fn read_back(rows: usize) -> (usize, Vec<String>) {
        let columns = [
            ("text", Kind::Text),
            ("n", Kind::Integer),
            ("x", Kind::Double),
            ("is", Kind::Boolean),
        ]
        .map(|(name, kind)| (name.to_owned(), kind));
        let mut writer = ParquetWriter::new(Vec::new(), &columns).unwrap();
        for n in 0..rows as i64 {
            let text = if n % 3 == 0 { Cell::Null } else { Cell::Text(format!("text {n}")) };
            let row =
                [text, Cell::Integer(n), Cell::Double(n as f64 / 2.0), Cell::Boolean(n % 2 == 0)];
            writer.write(&row).unwrap();
        }
        let file = bytes::Bytes::from(writer.finish().unwrap());
        let reader = SerializedFileReader::new(file).unwrap();
        let rows = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        (reader.num_row_groups(), rows)
    }

    #[test]
    fn rows_read_back_as_written() {
        let (groups, rows) = read_back(4);
        assert_eq!(groups, 1);
        insta::assert_snapshot!(rows.join("\n"), @r#"
        {text: null, n: 0, x: 0E0, is: true}
        {text: "text 1", n: 1, x: 0.5, is: false}
        {text: "text 2", n: 2, x: 1.0, is: true}
        {text: null, n: 3, x: 1.5, is: false}
        "#);
        assert_eq!(read_back(0), (0, Vec::new()), "a file without rows is one");
    }

    #[test]
    fn long_files_have_several_groups() {
        let (groups, rows) = read_back(GROUP_ROWS_MAX + 1);
        assert_eq!((groups, rows.len()), (2, GROUP_ROWS_MAX + 1));
        assert_eq!(
            rows.last().unwrap(),
            "{text: \"text 1048576\", n: 1048576, x: 524288.0, is: true}"
        );
    }

    #[test]
    fn cells_of_another_type_are_null() {
        let mut writer =
            ParquetWriter::new(Vec::new(), &[("n".to_owned(), Kind::Integer)]).unwrap();
        writer.write(&[Cell::Text("1".into())]).unwrap();
        let file = bytes::Bytes::from(writer.finish().unwrap());
        let row = SerializedFileReader::new(file).unwrap().get_row_iter(None).unwrap().next();
        assert_eq!(row.unwrap().unwrap().to_string(), "{n: null}");
    }
}
