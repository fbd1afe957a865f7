//! A change of the records that services keep.

use crate::{Cluster, Expected, Refusal, ServiceRecord};
use serde::{Deserialize, Serialize};

/// A change of the records that services keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordChange {
    /// A new or changed record of a service.
    PutServiceRecord {
        /// ID of the service.
        service: String,
        /// Its name.
        name: String,
        /// The record.
        record: Box<ServiceRecord>,
        /// What must be there.
        expected: Expected,
    },
    /// The end of a record of a service.
    DropServiceRecord {
        /// ID of the service.
        service: String,
        /// Its name.
        name: String,
        /// What must be there.
        expected: Expected,
    },
}

impl RecordChange {
    pub(crate) fn apply(&self, cluster: &mut Cluster) -> Result<(), Refusal> {
        match self {
            RecordChange::PutServiceRecord { service, name, record, expected } => {
                if let ServiceRecord { bucket: Some(bucket), scope, .. } = &**record {
                    cluster.bucket(bucket)?.manifest.collections(scope.as_deref(), None)?;
                }
                cluster.service_records.put(service, name, record, expected)?
            }
            RecordChange::DropServiceRecord { service, name, expected } => {
                cluster.service_records.remove(service, name, expected)?
            }
        }
        Ok(())
    }
}
