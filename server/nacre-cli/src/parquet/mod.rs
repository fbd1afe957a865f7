//! Files of Apache Parquet, written row by row: what `nacre export parquet` needs of the format, and no more.
//!
//! ```text
//! PAR1 │ group: column 0: page, page, …; column 1: page, … │ group … │ metadata │ its length │ PAR1
//! page = header │ zstd of (definition levels │ values of the rows that have one)
//! ```
//!
//! All columns are optional and flat. A page has about [`PAGE_BYTES`] before compression, a group of rows about [`GROUP_BYTES`], which is
//! kept compressed until the group is written: memory does not grow with the file. Nothing is ever read here.
//!
//! Source: apache/parquet-format, `parquet.thrift` and `Encodings.md`.

mod thrift;

use std::io::{self, Write};
use thrift::{Struct, varint};

const MAGIC: &[u8; 4] = b"PAR1";
/// Bytes of values after which a page is complete. Source: the size that the format recommends.
const PAGE_BYTES: usize = 1 << 20;
/// Bytes of values after which a group of rows is complete.
const GROUP_BYTES: u64 = 64 << 20;
/// Rows after which it is, too.
const GROUP_ROWS_MAX: u64 = 1 << 20;
/// Level of zstd: fast, as in backups.
const LEVEL: i32 = 3;

/// Numbers of the format.
const OPTIONAL: i32 = 1;
const DATA_PAGE: i32 = 0;
const PLAIN: i32 = 0;
const RLE: i32 = 3;
const ZSTD: i32 = 6;
const UTF8: i32 = 0;

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

impl Kind {
    /// The physical type.
    fn number(self) -> i32 {
        match self {
            Kind::Boolean => 0,
            Kind::Integer => 2,
            Kind::Double => 5,
            Kind::Text => 6,
        }
    }
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

/// A column of the group that is being filled.
struct Column {
    name: String,
    kind: Kind,
    /// Runs of definition levels of the open page: how many rows, and whether they have a value.
    levels: Vec<(u64, bool)>,
    /// Values of the open page.
    values: Vec<u8>,
    /// Booleans of the open page that do not fill a byte, and their number.
    bits: (u8, u8),
    /// Complete pages with their headers, and what they were before compression.
    pages: Vec<u8>,
    raw_bytes: u64,
}

/// A part of the file with the values of a column.
struct Chunk {
    offset: u64,
    bytes: u64,
    raw_bytes: u64,
}

/// A group of rows that was written.
struct Group {
    rows: u64,
    chunks: Vec<Chunk>,
}

/// A file that is being written.
pub(crate) struct ParquetWriter<W> {
    output: W,
    /// Bytes that were written.
    position: u64,
    columns: Vec<Column>,
    rows: u64,
    group_bytes: u64,
    groups: Vec<Group>,
}

impl<W: Write> ParquetWriter<W> {
    /// Begins a file with columns of these names.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn new(mut output: W, columns: &[(String, Kind)]) -> io::Result<ParquetWriter<W>> {
        output.write_all(MAGIC)?;
        let column = |(name, kind): &(String, Kind)| Column {
            name: name.clone(),
            kind: *kind,
            levels: Vec::new(),
            values: Vec::new(),
            bits: (0, 0),
            pages: Vec::new(),
            raw_bytes: 0,
        };
        let columns = columns.iter().map(column).collect();
        let (position, groups) = (MAGIC.len() as u64, Vec::new());
        Ok(ParquetWriter { output, position, columns, rows: 0, group_bytes: 0, groups })
    }

    /// Adds a row. It has a cell for each column; one of another type than its column is null.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn write(&mut self, row: &[Cell]) -> io::Result<()> {
        debug_assert_eq!(row.len(), self.columns.len(), "a row has a cell for each column");
        for (column, cell) in self.columns.iter_mut().zip(row) {
            self.group_bytes += column.push(cell)?;
        }
        self.rows += 1;
        let is_full = self.group_bytes >= GROUP_BYTES || self.rows >= GROUP_ROWS_MAX;
        if is_full { self.end_group() } else { Ok(()) }
    }

    /// Ends the file; returns the output.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        if self.rows > 0 {
            self.end_group()?;
        }
        let metadata = self.metadata();
        self.output.write_all(&metadata)?;
        let length = u32::try_from(metadata.len()).map_err(|_| too_large("the metadata"))?;
        self.output.write_all(&length.to_le_bytes())?;
        self.output.write_all(MAGIC)?;
        Ok(self.output)
    }

    fn end_group(&mut self) -> io::Result<()> {
        let mut chunks = Vec::new();
        for column in &mut self.columns {
            column.end_page()?;
            let (pages, raw_bytes) =
                (std::mem::take(&mut column.pages), std::mem::take(&mut column.raw_bytes));
            self.output.write_all(&pages)?;
            let bytes = pages.len() as u64;
            chunks.push(Chunk { offset: self.position, bytes, raw_bytes });
            self.position += bytes;
        }
        self.groups.push(Group { rows: std::mem::take(&mut self.rows), chunks });
        self.group_bytes = 0;
        Ok(())
    }

    /// The metadata at the end of the file.
    fn metadata(&self) -> Vec<u8> {
        let mut output = Vec::new();
        let rows = self.groups.iter().map(|group| group.rows).sum::<u64>();
        Struct::write(&mut output, |file| {
            file.i32(1, 2);
            // The root comes first, as the parent of all columns.
            let schema: Vec<Option<&Column>> =
                std::iter::once(None).chain(self.columns.iter().map(Some)).collect();
            file.structs(2, &schema, |element, own| match element {
                None => {
                    own.text(4, "document");
                    own.i32(5, self.columns.len() as i32);
                }
                Some(column) => column.describe(own),
            });
            file.i64(3, rows as i64);
            file.structs(4, &self.groups, |group, own| self.describe(group, own));
            file.text(6, concat!("nacre version ", env!("CARGO_PKG_VERSION")));
        });
        output
    }

    fn describe(&self, group: &Group, own: &mut Struct<'_>) {
        let columns: Vec<(&Column, &Chunk)> = self.columns.iter().zip(&group.chunks).collect();
        own.structs(1, &columns, |(column, chunk), own| {
            own.i64(2, chunk.offset as i64);
            own.inner(3, |own| {
                own.i32(1, column.kind.number());
                own.numbers(2, &[PLAIN, RLE]);
                own.texts(3, &[column.name.as_str()]);
                own.i32(4, ZSTD);
                own.i64(5, group.rows as i64);
                own.i64(6, chunk.raw_bytes as i64);
                own.i64(7, chunk.bytes as i64);
                own.i64(9, chunk.offset as i64);
            });
        });
        own.i64(2, group.chunks.iter().map(|chunk| chunk.raw_bytes).sum::<u64>() as i64);
        own.i64(3, group.rows as i64);
    }
}

impl Column {
    /// Its element of the schema.
    fn describe(&self, own: &mut Struct<'_>) {
        own.i32(1, self.kind.number());
        own.i32(3, OPTIONAL);
        own.text(4, &self.name);
        if self.kind == Kind::Text {
            own.i32(6, UTF8);
            // The same in the present form: a union whose first member is an empty struct.
            own.inner(10, |own| own.inner(1, |_| ()));
        }
    }

    /// Adds the value of a row; returns the bytes that it takes.
    fn push(&mut self, cell: &Cell) -> io::Result<u64> {
        let before = self.values.len();
        let has_value = match (self.kind, cell) {
            (Kind::Text, Cell::Text(text)) => {
                let length = u32::try_from(text.len()).map_err(|_| too_large("a value"))?;
                self.values.extend(length.to_le_bytes());
                self.values.extend_from_slice(text.as_bytes());
                true
            }
            (Kind::Integer, Cell::Integer(number)) => {
                self.values.extend(number.to_le_bytes());
                true
            }
            (Kind::Double, Cell::Double(number)) => {
                self.values.extend(number.to_le_bytes());
                true
            }
            (Kind::Boolean, Cell::Boolean(is_true)) => {
                self.push_bit(*is_true);
                true
            }
            _ => false,
        };
        match self.levels.last_mut() {
            Some((count, level)) if *level == has_value => *count += 1,
            _ => self.levels.push((1, has_value)),
        }
        // A run of levels takes up to ten bytes.
        let bytes = (self.values.len() - before + 1) as u64;
        if self.values.len() + 10 * self.levels.len() >= PAGE_BYTES {
            self.end_page()?;
        }
        Ok(bytes)
    }

    fn push_bit(&mut self, is_set: bool) {
        let (bits, count) = self.bits;
        self.bits = (bits | u8::from(is_set) << count, count + 1);
        if self.bits.1 == 8 {
            self.values.push(self.bits.0);
            self.bits = (0, 0);
        }
    }

    /// Completes the open page, if it has a row.
    fn end_page(&mut self) -> io::Result<()> {
        if self.levels.is_empty() {
            return Ok(());
        }
        if self.bits.1 > 0 {
            self.values.push(self.bits.0);
            self.bits = (0, 0);
        }
        let rows = self.levels.iter().map(|(count, _)| count).sum::<u64>();
        let mut levels = Vec::new();
        for (count, has_value) in self.levels.drain(..) {
            // A run of equal values of one bit: twice its length, and the value in a byte.
            varint(count << 1, &mut levels);
            levels.push(has_value.into());
        }
        let mut raw = (levels.len() as u32).to_le_bytes().to_vec();
        raw.append(&mut levels);
        raw.append(&mut self.values);
        let packed = zstd::bulk::compress(&raw, LEVEL)?;
        let size = |bytes: usize| i32::try_from(bytes).map_err(|_| too_large("a page"));
        let (raw_size, packed_size) = (size(raw.len())?, size(packed.len())?);
        let before = self.pages.len();
        Struct::write(&mut self.pages, |page| {
            page.i32(1, DATA_PAGE);
            page.i32(2, raw_size);
            page.i32(3, packed_size);
            page.inner(5, |own| {
                own.i32(1, rows as i32);
                own.i32(2, PLAIN);
                own.i32(3, RLE);
                own.i32(4, RLE);
            });
        });
        self.raw_bytes += (self.pages.len() - before + raw.len()) as u64;
        self.pages.extend(packed);
        Ok(())
    }
}

fn too_large(what: &str) -> io::Error {
    io::Error::other(format!("{what} is too large for Parquet"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<(String, Kind)> {
        [("text", Kind::Text), ("n", Kind::Integer), ("x", Kind::Double), ("is", Kind::Boolean)]
            .map(|(name, kind)| (name.to_owned(), kind))
            .to_vec()
    }

    fn row(n: i64) -> [Cell; 4] {
        let text = if n % 3 == 0 { Cell::Null } else { Cell::Text(format!("text {n}")) };
        [text, Cell::Integer(n), Cell::Double(n as f64 / 2.0), Cell::Boolean(n % 2 == 0)]
    }

    fn written(rows: i64) -> Vec<u8> {
        let mut writer = ParquetWriter::new(Vec::new(), &columns()).unwrap();
        (0..rows).for_each(|n| writer.write(&row(n)).unwrap());
        writer.finish().unwrap()
    }

    /// Reads a number of seven bits in a byte.
    fn read_varint(bytes: &mut &[u8]) -> u64 {
        let end = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap();
        let (number, rest) = bytes.split_at(end + 1);
        *bytes = rest;
        number.iter().rev().fold(0, |sum, byte| sum << 7 | u64::from(byte & 0x7f))
    }

    /// Splits a page of one column into what its header says of sizes, and the values.
    fn first_page(file: &[u8]) -> (u64, Vec<u8>) {
        let mut rest = &file[4..];
        // Fields 1, 2, 3 and 5: type, both sizes, and the header of a page with data.
        assert_eq!(rest[..2], [0x15, 0]);
        rest = &rest[2..];
        let mut size = || {
            assert_eq!(rest[0], 0x15);
            rest = &rest[1..];
            (read_varint(&mut rest) / 2) as usize
        };
        let (raw, packed) = (size(), size());
        assert_eq!(rest[..2], [0x2c, 0x15]);
        rest = &rest[2..];
        let rows = read_varint(&mut rest) / 2;
        assert_eq!(rest[..8], [0x15, 0, 0x15, 6, 0x15, 6, 0, 0]);
        (rows, zstd::bulk::decompress(&rest[8..8 + packed], raw).unwrap())
    }

    #[test]
    fn a_page_has_the_levels_of_its_rows_and_the_values_of_those_that_have_one() {
        let file = written(5);
        let (rows, page) = first_page(&file);
        assert_eq!(rows, 5);
        // null, 1, 2, null, 4
        let levels = [2, 0, 4, 1, 2, 0, 2, 1];
        assert_eq!(page[..4], 8_u32.to_le_bytes());
        assert_eq!(page[4..12], levels);
        let values: Vec<u8> = ["text 1", "text 2", "text 4"]
            .iter()
            .flat_map(|text| [&6_u32.to_le_bytes()[..], text.as_bytes()].concat())
            .collect();
        assert_eq!(page[12..], values);
    }

    #[test]
    fn a_file_ends_with_the_length_of_its_metadata() {
        for rows in [0, 5] {
            let file = written(rows);
            let (rest, magic) = file.split_at(file.len() - 4);
            let (rest, length) = rest.split_last_chunk::<4>().unwrap();
            let metadata = &rest[rest.len() - u32::from_le_bytes(*length) as usize..];
            assert_eq!((&file[..4], magic), (&MAGIC[..], &MAGIC[..]));
            // Version 2, and a list of five elements.
            assert_eq!(metadata[..4], [0x15, 4, 0x19, 0x5c]);
            assert!(metadata.ends_with(&[0]));
            assert!(String::from_utf8_lossy(metadata).contains("nacre version"));
        }
    }

    #[test]
    fn booleans_are_bits_and_cells_of_other_types_are_null() {
        let one = |kind, cells: &[Cell]| {
            let columns = [("c".to_owned(), kind)];
            let mut writer = ParquetWriter::new(Vec::new(), &columns).unwrap();
            cells.iter().for_each(|cell| writer.write(std::slice::from_ref(cell)).unwrap());
            first_page(&writer.finish().unwrap()).1
        };
        let nine: Vec<Cell> = (0..9).map(|n| Cell::Boolean(n == 0 || n == 8)).collect();
        assert_eq!(one(Kind::Boolean, &nine), [2, 0, 0, 0, 18, 1, 1, 1]);
        let mixed = [Cell::Integer(1), Cell::Text("1".into()), Cell::Double(1.0)];
        assert_eq!(one(Kind::Integer, &mixed)[..8], [4, 0, 0, 0, 2, 1, 4, 0]);
    }

    #[test]
    fn a_large_column_is_split_into_pages_and_rows_into_groups() {
        let columns = [("c".to_owned(), Kind::Text)];
        let mut writer = ParquetWriter::new(Vec::new(), &columns).unwrap();
        let large = [Cell::Text("x".repeat(1 << 20))];
        for _ in 0..65 {
            writer.write(&large).unwrap();
        }
        assert_eq!((writer.groups.len(), writer.rows), (1, 1));
        assert!(writer.columns[0].pages.len() < 1 << 20, "pages are kept compressed");
        let file = writer.finish().unwrap();
        assert_eq!(first_page(&file).0, 1);
    }
}
