//! The workloads and their names.

use super::client::Pattern;
use super::comments::{self, Comments};
use super::feeds::{self, Feeds, Sizes};
use super::keys::{IncrementingKey, UuidKey};
use super::lookups::{self, Users};
use super::properties::Properties;
use clap::ValueEnum;

/// UUIDs of posts, as in the original workloads.
const ENUMERABLE_POST: &str = "9d7c9ac5-847f-4688-bb3d-35f8e936a6a6";
const LIST_POST: &str = "5682c7f7-ce2a-4133-b99c-f9a3a9cd884a";
/// Default number of users and comments that are loaded.
const LOADED: u64 = 1000;
/// Default size of a field in bytes, as in the original workloads.
const FIELD_BYTES: usize = 25;

/// A workload. The names of the original classes are taken, too.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Users under the numbers of a counter, which may be in another cluster
    #[value(alias = "IncrementingKey")]
    IncrementingKey,
    /// Users under UUIDs
    #[value(aliases = ["Uuid", "UuidKey"])]
    UuidKey,
    /// Users, with an index on their addresses
    #[value(alias = "SecondaryIndexInsertUser")]
    SecondaryIndexInsert,
    /// Users by their address, through an index that is where the documents are
    #[value(alias = "SecondaryIndexQueryUser")]
    SecondaryIndexQuery,
    /// Users, with an index that is spread by the hash of their addresses
    HashIndexInsert,
    /// Users by their address, through an index that is spread by its hash
    HashIndexQuery,
    /// Users, each with a document that leads from the address to the user
    #[value(alias = "IndexTableInsertUser")]
    IndexTableInsert,
    /// Users by their address, through such a document
    #[value(alias = "IndexTableQueryUser")]
    IndexTableQuery,
    /// Comments in a list, which clients read and write as a whole
    #[value(alias = "LbaPostComment")]
    LbaPost,
    /// Comments in a list, to which the server appends
    LbaPush,
    /// Pages of a list of comments, which is read as a whole
    #[value(alias = "LbaPaginateComments")]
    LbaPaginate,
    /// Pages of a list of comments, of which the server reads some elements
    LbaSlice,
    /// Comments under keys that are counted up
    #[value(alias = "EnumerableKeysPostComment")]
    EnumerableKeysPost,
    /// Pages of comments under keys that are counted up
    #[value(alias = "EnumerableKeysPaginateComments")]
    EnumerableKeysPaginate,
    /// Activities, saved once
    #[value(alias = "ForSaveActivity")]
    ForSave,
    /// Pages of feeds that are made of activities when they are read
    #[value(alias = "ForPaginateFeeds")]
    ForPaginate,
    /// Activities, copied into the feed of each follower
    #[value(alias = "FowSaveActivity")]
    FowSave,
    /// Pages of feeds, each a range of an index that is spread by reader
    #[value(alias = "FowPaginateFeeds")]
    FowPaginate,
    /// Activities, copied into feeds under keys that are counted up
    FowKeysSave,
    /// Pages of feeds under keys that are counted up
    FowKeysPaginate,
}

impl Workload {
    /// Returns its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns the pattern with the sizes in `properties`, for `clusters` clusters.
    ///
    /// # Errors
    /// A property with an invalid value.
    pub fn pattern(
        self,
        properties: &Properties,
        bucket: &str,
        clusters: usize,
    ) -> Result<Box<dyn Pattern>, String> {
        use Workload as W;
        let field_bytes = properties.get("fieldSize", FIELD_BYTES)?;
        let users = |means, work| users(means, work, properties, bucket);
        let comments = |means, work| comments(means, work, properties);
        let feeds = |means, work| -> Result<Box<dyn Pattern>, String> {
            Ok(Box::new(Feeds::new(means, work, sizes(means, properties)?, bucket)))
        };
        match self {
            W::IncrementingKey => {
                let is_remote = properties.get("incrementingKey.remoteCounter", false)?;
                if is_remote && clusters < 2 {
                    return Err(
                        "a remote counter needs a second cluster: name it in clusters".to_owned()
                    );
                }
                Ok(Box::new(IncrementingKey { counter: is_remote.into(), field_bytes }))
            }
            W::UuidKey => Ok(Box::new(UuidKey { field_bytes })),
            W::SecondaryIndexInsert => {
                users(lookups::LookupModel::LocalIndex, lookups::Work::Insert)
            }
            W::SecondaryIndexQuery => users(lookups::LookupModel::LocalIndex, lookups::Work::Query),
            W::HashIndexInsert => users(lookups::LookupModel::HashIndex, lookups::Work::Insert),
            W::HashIndexQuery => users(lookups::LookupModel::HashIndex, lookups::Work::Query),
            W::IndexTableInsert => users(lookups::LookupModel::IndexTable, lookups::Work::Insert),
            W::IndexTableQuery => users(lookups::LookupModel::IndexTable, lookups::Work::Query),
            W::LbaPost => comments(comments::CommentModel::WholeList, comments::Work::Post),
            W::LbaPush => comments(comments::CommentModel::ListPaths, comments::Work::Post),
            W::LbaPaginate => comments(comments::CommentModel::WholeList, comments::Work::Paginate),
            W::LbaSlice => comments(comments::CommentModel::ListPaths, comments::Work::Paginate),
            W::EnumerableKeysPost => {
                comments(comments::CommentModel::EnumerableKeys, comments::Work::Post)
            }
            W::EnumerableKeysPaginate => {
                comments(comments::CommentModel::EnumerableKeys, comments::Work::Paginate)
            }
            W::ForSave => feeds(feeds::FeedModel::Read, feeds::Work::Save),
            W::ForPaginate => feeds(feeds::FeedModel::Read, feeds::Work::Paginate),
            W::FowSave => feeds(feeds::FeedModel::Write, feeds::Work::Save),
            W::FowPaginate => feeds(feeds::FeedModel::Write, feeds::Work::Paginate),
            W::FowKeysSave => feeds(feeds::FeedModel::WriteByNumber, feeds::Work::Save),
            W::FowKeysPaginate => feeds(feeds::FeedModel::WriteByNumber, feeds::Work::Paginate),
        }
    }
}

fn users(
    means: lookups::LookupModel,
    work: lookups::Work,
    properties: &Properties,
    bucket: &str,
) -> Result<Box<dyn Pattern>, String> {
    let names: &[&str] = match means {
        lookups::LookupModel::IndexTable => &["indexTable.counterStart", "indexTable.counterStar"],
        _ => &["secondaryIndex.counterStart"],
    };
    let given = names.iter().find(|name| properties.text(name).is_some());
    Ok(Box::new(Users {
        means,
        work,
        first: given.map_or(Ok(1), |name| properties.get(name, 1))?,
        loaded: properties.count("recordcount", LOADED)?,
        field_bytes: properties.get("fieldSize", FIELD_BYTES)?,
        bucket: bucket.to_owned(),
        consistency: properties.text("scanConsistency").unwrap_or("not_bounded").to_owned(),
    }))
}

fn comments(
    means: comments::CommentModel,
    work: comments::Work,
    properties: &Properties,
) -> Result<Box<dyn Pattern>, String> {
    let (prefix, post) = match means {
        comments::CommentModel::EnumerableKeys => ("enumerableKeys", ENUMERABLE_POST),
        _ => ("lba", LIST_POST),
    };
    let post = properties.text(&format!("{prefix}.postUuid")).unwrap_or(post).to_owned();
    let loaded = properties.count(&format!("{prefix}.pagination.commentCount"), LOADED)?;
    Ok(Box::new(Comments { means, work, post, loaded }))
}

/// Returns the sizes, with the defaults of the original workloads.
fn sizes(means: feeds::FeedModel, properties: &Properties) -> Result<Sizes, String> {
    let prefix = if means == feeds::FeedModel::Read { "for" } else { "fow" };
    let count = |name: &str, default| properties.count(&format!("{prefix}.{name}"), default);
    let sizes = Sizes {
        users: count("usersCount", 100)?,
        friends_per_user: count("friendsPerUser", 10)?,
        friends_per_page: count("friendsPerPage", 10)?,
        activities_per_user: count("activitiesPerUser", 10)?,
        activities_per_friend: count("friendActivitiesPerPage", 1)?,
        activities_per_page: count("activitiesPerPage", 10)?,
        content_bytes: properties.get("fieldSize", FIELD_BYTES)?,
    };
    if sizes.friends_per_user >= sizes.users {
        return Err(format!("{prefix}.friendsPerUser is less than {prefix}.usersCount"));
    }
    // Maximum number of list elements that one request reads.
    if sizes.friends_per_page > 16 {
        return Err(format!("{prefix}.friendsPerPage goes from 1 to 16"));
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn pattern(workload: Workload, given: &[&str]) -> Result<Box<dyn Pattern>, String> {
        let given: Vec<String> = given.iter().map(|one| (*one).to_owned()).collect();
        let properties = Properties::read(&[] as &[&Path], &given)?;
        workload.pattern(&properties, "b", 1)
    }

    #[test]
    fn names_of_the_original_classes_are_accepted() {
        let named = |name: &str| Workload::from_str(name, false).map(Workload::name);
        assert_eq!(named("IndexTableQueryUser").unwrap(), "index-table-query");
        assert_eq!(named("FowPaginateFeeds").unwrap(), "fow-paginate");
        assert_eq!(named("lba-push").unwrap(), "lba-push");
        assert!(named("other").is_err());
    }

    #[test]
    fn sizes_come_from_properties() {
        let loads = |workload, given: &[&str]| pattern(workload, given).map(|made| made.loads());
        let feeds = ["fow.usersCount=7", "fow.friendsPerUser=3", "fow.activitiesPerUser=2"];
        assert_eq!(loads(Workload::FowPaginate, &feeds), Ok(7 + 7 * 2));
        assert_eq!(loads(Workload::FowSave, &feeds), Ok(7));
        assert_eq!(loads(Workload::IndexTableQuery, &["recordcount=12"]), Ok(12));
        assert_eq!(loads(Workload::IndexTableInsert, &["recordcount=12"]), Ok(0));
        let comments = ["enumerableKeys.pagination.commentCount=30"];
        assert_eq!(loads(Workload::EnumerableKeysPaginate, &comments), Ok(30));
    }

    #[test]
    fn invalid_sizes_are_refused() {
        let refused = |workload, given: &[&str]| pattern(workload, given).err().unwrap_or_default();
        let reason = refused(Workload::ForSave, &["for.friendsPerUser=100"]);
        assert_eq!(reason, "for.friendsPerUser is less than for.usersCount");
        let reason = refused(Workload::IncrementingKey, &["incrementingKey.remoteCounter=true"]);
        assert!(reason.contains("second cluster"), "{reason}");
        let reason = refused(Workload::ForPaginate, &["for.friendsPerPage=17"]);
        assert_eq!(reason, "for.friendsPerPage goes from 1 to 16");
    }
}
