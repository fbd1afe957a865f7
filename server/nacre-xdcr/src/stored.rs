//! The stored form of records, kept with a vBucket. It is JSON so that later versions can add fields.

use crate::{Malformed, RECORDS_MAX, Record, Records, TargetPoint};
use nacre_dcp::ResumePoint;
use nacre_types::{Seqno, VbUuid, Vbid};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct StoredRecord {
    vbuuid: VbUuid,
    seqno: Seqno,
    snapshot: (Seqno, Seqno),
    /// vBucket, branch and seqno of the target.
    targets: Vec<(Vbid, VbUuid, Seqno)>,
    made: u32,
}

impl Records {
    /// The records as JSON.
    pub fn encode(&self) -> Vec<u8> {
        let stored = |record: &Record| StoredRecord {
            vbuuid: record.source.vb_uuid,
            seqno: record.source.seqno,
            snapshot: (record.source.snapshot_start, record.source.snapshot_end),
            targets: record.targets.iter().map(|(v, it)| (*v, it.vb_uuid, it.seqno)).collect(),
            made: record.made_s,
        };
        let records: Vec<StoredRecord> = self.iter().map(stored).collect();
        serde_json::to_vec(&records).expect("numbers can be written")
    }

    /// Reads the text of [`Records::encode`].
    ///
    /// # Errors
    /// [`Malformed`] for any other text. A pipeline without readable records restarts from zero.
    pub fn decode(text: &[u8]) -> Result<Records, Malformed> {
        let records: Vec<StoredRecord> = serde_json::from_slice(text).map_err(|_| Malformed)?;
        let is_whole = |record: &StoredRecord| {
            let (start, end) = record.snapshot;
            start <= record.seqno && record.seqno <= end && record.vbuuid.0 != 0
        };
        let descends = records.windows(2).all(|pair| pair[0].seqno >= pair[1].seqno);
        if records.len() > RECORDS_MAX || !descends || !records.iter().all(is_whole) {
            return Err(Malformed);
        }
        let read = |record: StoredRecord| Record {
            source: ResumePoint {
                vb_uuid: record.vbuuid,
                seqno: record.seqno,
                snapshot_start: record.snapshot.0,
                snapshot_end: record.snapshot.1,
            },
            targets: record
                .targets
                .into_iter()
                .map(|(vbid, vb_uuid, seqno)| (vbid, TargetPoint { vb_uuid, seqno }))
                .collect(),
            made_s: record.made,
        };
        Ok(Records::stored(records.into_iter().map(read).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = r#"[{"vbuuid":7,"seqno":20,"snapshot":[15,30],"targets":[[3,9,200],[5,8,100]],"made":1800000000},{"vbuuid":7,"seqno":10,"snapshot":[10,10],"targets":[[3,9,50]],"made":1799999000}]"#;

    #[test]
    fn records_read_back_as_written() {
        let records = Records::decode(EXAMPLE.as_bytes()).unwrap();
        assert_eq!(records.iter().count(), 2);
        assert_eq!(String::from_utf8(records.encode()).unwrap(), EXAMPLE);
        assert_eq!(Records::decode(&Records::default().encode()), Ok(Records::default()));
    }

    #[test]
    fn a_malformed_list_of_records_is_refused() {
        let turned = EXAMPLE.replace("\"seqno\":10", "\"seqno\":25");
        let outside = EXAMPLE.replace("[15,30]", "[21,30]");
        let nameless = EXAMPLE.replace("\"vbuuid\":7", "\"vbuuid\":0");
        for text in ["", "{}", "[1]", &turned, &outside, &nameless] {
            assert_eq!(Records::decode(text.as_bytes()), Err(Malformed), "{text}");
        }
    }
}
