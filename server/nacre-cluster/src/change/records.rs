//! Changes of service records.

use crate::{Cluster, Expected, Refusal, ServiceRecord};
use serde::{Deserialize, Serialize};

/// A change of a service record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordChange {
    /// Creates or changes a record of a service.
    PutServiceRecord {
        /// ID of the service.
        service: String,
        /// Name of the record.
        name: String,
        /// The record.
        record: Box<ServiceRecord>,
        /// The precondition.
        expected: Expected,
    },
    /// Drops a record of a service.
    DropServiceRecord {
        /// ID of the service.
        service: String,
        /// Name of the record.
        name: String,
        /// The precondition.
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
