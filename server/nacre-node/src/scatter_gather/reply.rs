//! What this node answers for the vBuckets that it serves.

use super::{Answer, Question};
use crate::node::Node;
use crate::plugins::BucketDocuments;
use crate::plugins::partitions::ends;
use crate::query::answer_step;
use nacre_plugin_host::{Documents, Failure, KvError};
use nacre_types::{Seqno, Vbid};
use std::sync::Arc;
use std::time::Duration;

/// The code of what no user can do anything about. Source: Couchbase's query service.
const INTERNAL: u32 = 5000;

/// No answer, for a reason that nobody can do anything about.
pub(crate) fn failed(message: String) -> Answer {
    Answer::Failed(Failure { code: INTERNAL, message, retry: false })
}

impl Node {
    /// Answers a question about what this node serves. Blocks, for `left` at most.
    pub(crate) fn reply(self: &Arc<Node>, question: Question, left: Duration) -> Answer {
        match question {
            Question::Document { bucket, path, key, call } => {
                let Some(bucket) = self.bucket(&bucket) else { return Answer::Elsewhere };
                let documents = BucketDocuments::new(self, &bucket);
                match documents.call(&path, &key, &call, left) {
                    Err(KvError::Elsewhere) => Answer::Elsewhere,
                    outcome => Answer::Document(outcome, documents.written()),
                }
            }
            Question::Step { bucket, path, key, step } => {
                let Some(bucket) = self.bucket(&bucket) else { return Answer::Elsewhere };
                match answer_step(self, &bucket, &path, &key, &step, left) {
                    Err(KvError::Elsewhere) => Answer::Elsewhere,
                    outcome => Answer::Step(outcome),
                }
            }
            Question::Stored(bucket, seqnos) => self.has_stored(&bucket, &seqnos),
            Question::Collection { bucket, path, call } => {
                self.queries().answer_collection(self, &bucket, &path, call, left)
            }
            Question::Index(part) => self.queries().answer_index(self, &part, left),
            Question::Forget(asker) => {
                self.queries().forget(asker);
                Answer::Heard
            }
            Question::Note(key) => Answer::Note(self.queries().noted(&key)),
            Question::Unnote(key) => {
                self.queries().forget_note(&key);
                Answer::Heard
            }
            Question::Places(state) => self.plugins().answer_places(&state),
            Question::Told(state, from, moments) => {
                self.plugins().hear_places(&state, from, &moments);
                Answer::Heard
            }
            Question::Follow(state, lacking) => self.plugins().answer_follower(&state, lacking),
            Question::Request(part) => self.plugins().answer_part(self, &part, left),
            Question::Scan(part) => self.plugins().answer_scan(&part, left),
            Question::Changes(part) => self.answer_changes(part, left),
            Question::Ends(bucket, vbids) => {
                let ends =
                    self.bucket(&bucket).and_then(|bucket| ends(&bucket, self.now(), &vbids));
                ends.map_or(Answer::Elsewhere, Answer::Ends)
            }
            Question::Settled => Answer::Settled(self.plugins().have_settled(self)),
            Question::Usage => Answer::Usage(self.own_usage()),
            Question::Unbuilt => Answer::Unbuilt(self.own_unbuilt()),
        }
    }

    fn has_stored(self: &Arc<Node>, bucket: &str, seqnos: &[(Vbid, Seqno)]) -> Answer {
        let Some(bucket) = self.bucket(bucket) else { return Answer::Elsewhere };
        if !bucket.serves(&seqnos.iter().map(|(vbid, _)| *vbid).collect(), self.now()) {
            return Answer::Elsewhere;
        }
        let documents = BucketDocuments::new(self, &bucket);
        documents.has_written(seqnos);
        match documents.settle() {
            Err(KvError::Elsewhere) => Answer::Elsewhere,
            outcome => Answer::Stored(outcome.is_ok()),
        }
    }
}
