//! Single documents: `GET`, `PUT` and `DELETE /{db}/{id}`, and the edits that bulk requests share.

use crate::Call;
use crate::attachments::resolve;
use crate::http::{Problem, durable, header, json};
use crate::json::{Given, document, quoted, read, stubs};
use crate::record::Attachments;
use crate::store::{Store, Version, check_id, rev_id};
use crate::tree::Rev;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use nacre_plugin::Response;

/// The CouchDB members that a client requests with a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// `_revisions`.
    pub revs: bool,
    /// `_revs_info`.
    pub revs_info: bool,
    /// `_conflicts`.
    pub conflicts: bool,
    /// `_deleted_conflicts`.
    pub deleted_conflicts: bool,
    /// The contents of attachments.
    pub attachments: bool,
    /// `_local_seq`.
    pub local_seq: bool,
}

impl Shape {
    /// Reads the parameters of a request.
    pub fn of(call: &Call<'_>) -> Shape {
        let is = |name| call.parameters.is(name);
        let meta = is("meta");
        Shape {
            revs: is("revs"),
            revs_info: is("revs_info") || meta,
            conflicts: is("conflicts") || meta,
            deleted_conflicts: is("deleted_conflicts") || meta,
            attachments: is("attachments"),
            local_seq: is("local_seq"),
        }
    }
}

/// Formats a leaf for clients.
///
/// # Errors
/// 404 if its body is not stored.
pub fn render(
    store: &Store<'_>,
    version: &Version,
    rev: &Rev,
    shape: Shape,
) -> Result<String, Problem> {
    let body = store.body(version, rev)?;
    let tree = version.tree();
    let mut head = vec![("_id", quoted(&version.id)), ("_rev", quoted(&rev.to_string()))];
    if tree.is_deleted(rev) {
        head.push(("_deleted", "true".into()));
    }
    let attachments = version.attachments(rev);
    if !attachments.is_empty() {
        let content = |name: &str| {
            let attachment = attachments.get(name).filter(|_| shape.attachments)?;
            let bytes = store.attachment(&version.id, attachment).ok()?;
            Some(BASE64_STANDARD.encode(bytes))
        };
        head.push(("_attachments", stubs(&attachments, content)));
    }
    let list = |revs: Vec<String>| format!("[{}]", revs.join(","));
    if shape.revs {
        let path = tree.path(rev);
        let ids = path.iter().map(|rev| quoted(&rev.id)).collect();
        head.push((
            "_revisions",
            format!("{{\"start\":{},\"ids\":{}}}", rev.generation, list(ids)),
        ));
    }
    if shape.revs_info {
        let info = |of: &Rev| {
            let status = match (of == rev, tree.is_deleted(of)) {
                (true, false) => "available",
                (true, true) | (false, true) => "deleted",
                (false, false) => "missing",
            };
            format!("{{\"rev\":{},\"status\":\"{status}\"}}", quoted(&of.to_string()))
        };
        head.push(("_revs_info", list(tree.path(rev).iter().map(info).collect())));
    }
    let others = |deleted: bool| -> Vec<String> {
        let leaves = tree.leaves().into_iter().filter(|leaf| leaf != rev);
        let leaves = leaves.filter(|leaf| tree.is_deleted(leaf) == deleted);
        leaves.map(|leaf| quoted(&leaf.to_string())).collect()
    };
    if version.winner().as_ref() == Some(rev) {
        for (is_wanted, name, deleted) in [
            (shape.conflicts, "_conflicts", false),
            (shape.deleted_conflicts, "_deleted_conflicts", true),
        ] {
            let revs = if is_wanted { others(deleted) } else { Vec::new() };
            if !revs.is_empty() {
                head.push((name, list(revs)));
            }
        }
    }
    if shape.local_seq {
        let seq = crate::index::by_id(store.state, &version.id).map_or(0, |row| row.seq);
        head.push(("_local_seq", seq.to_string()));
    }
    Ok(document(&head, &body))
}

/// Edits a document: adds a child to the leaf that the client names.
///
/// # Errors
/// 409 if it is no longer a leaf.
pub fn edit(store: &Store<'_>, id: &str, given: &Given) -> Result<Rev, Problem> {
    check_id(id)?;
    store.update(id, |version| {
        let tree = version.tree();
        let winner = version.winner();
        let parent = match &given.rev {
            Some(rev) if tree.leaves().contains(rev) => Some(rev.clone()),
            Some(_) => return Err(Problem::conflict()),
            None if winner.as_ref().is_none_or(|winner| tree.is_deleted(winner)) => winner,
            None => return Err(Problem::conflict()),
        };
        let generation = parent.as_ref().map_or(1, |parent| parent.generation + 1);
        let before = parent.as_ref().map(|parent| version.attachments(parent)).unwrap_or_default();
        let attachments = resolve(store, id, &given.attachments, generation, &[before])?;
        let name = rev_id(parent.as_ref(), given.deleted, &given.body, &attachments);
        let rev = Rev { generation, id: name };
        if tree.contains(&rev) {
            return Err(Problem::conflict());
        }
        version.record.tree.add(parent, rev.clone(), given.deleted);
        version.set(rev.clone(), given.body.clone(), attachments);
        Ok((rev, true))
    })
}

/// Stores a revision that was made elsewhere, with its path.
///
/// # Errors
/// The reason, if it is not stored.
pub fn replicate(store: &Store<'_>, id: &str, given: &Given) -> Result<Rev, Problem> {
    check_id(id)?;
    let rev = given.rev.clone();
    let path = match (&given.path, &rev) {
        (Some(path), Some(rev)) if path.first() != Some(rev) => {
            return Err(Problem::invalid("_revisions does not begin with _rev"));
        }
        (Some(path), _) => path.clone(),
        (None, Some(rev)) => vec![rev.clone()],
        (None, None) => {
            return Err(Problem::bad("When using `new_edits: false`, the document needs a _rev"));
        }
    };
    let Some(newest) = path.first().cloned() else {
        return Err(Problem::invalid("_revisions is empty"));
    };
    store.update(id, |version| {
        if version.tree().contains(&newest) {
            // An ancestor may have been forgotten here: joining it again changes no leaf.
            return Ok((newest.clone(), false));
        }
        let known: Vec<Attachments> =
            version.record.contents.values().map(|content| content.attachments.clone()).collect();
        let attachments = resolve(store, id, &given.attachments, newest.generation, &known)?;
        version.record.tree.merge_path(&path, given.deleted);
        version.set(newest.clone(), given.body.clone(), attachments);
        Ok((newest.clone(), true))
    })
}

fn written(status: u16, id: &str, rev: &Rev) -> Response {
    let rev = quoted(&rev.to_string());
    let body = format!("{{\"ok\":true,\"id\":{},\"rev\":{rev}}}\n", quoted(id));
    let mut response = durable(json(status, body));
    response.headers.push(("etag".into(), rev));
    response
}

/// Returns the revision that a request names outside of its body.
///
/// # Errors
/// 400 for an invalid revision, or for two different ones.
pub fn named_rev(call: &Call<'_>, in_body: Option<Rev>) -> Result<Option<Rev>, Problem> {
    let parameter = call.parameters.get("rev");
    let matched = header(call.request, "if-match").map(|value| value.trim_matches('"'));
    let mut found = in_body;
    for text in [parameter, matched].into_iter().flatten() {
        let rev = Rev::parse(text).ok_or_else(|| Problem::bad("Invalid rev format"))?;
        if found.as_ref().is_some_and(|known| *known != rev) {
            return Err(Problem::bad(
                "Document rev from request body and query string have different values",
            ));
        }
        found = Some(rev);
    }
    Ok(found)
}

/// Answers `POST /{db}`.
///
/// # Errors
/// As for [`edit`].
pub fn create(call: &Call<'_>) -> Result<Response, Problem> {
    let text =
        std::str::from_utf8(&call.request.body).map_err(|_| Problem::bad("invalid UTF-8 JSON"))?;
    let given = read(text)?;
    let id = match &given.id {
        Some(id) => id.clone(),
        // The clock and the content distinguish it from others; a retry within a microsecond is a conflict.
        None => rev_id(
            None,
            false,
            &format!("{} {}", call.request.now_us, given.body),
            &Attachments::new(),
        ),
    };
    let rev = edit(&call.store, &id, &given)?;
    let mut response = written(201, &id, &rev);
    response.headers.push(("location".into(), format!("/{}/{}", call.store.config.database, id)));
    Ok(response)
}

/// Answers `/{db}/{id}`.
///
/// # Errors
/// The problem to answer with.
pub fn answer(call: &Call<'_>, method: &str, id: &str) -> Result<Response, Problem> {
    match method {
        "GET" => get(call, id),
        "PUT" => put(call, id),
        "DELETE" => delete(call, id),
        _ => Err(Problem::new(405, "method_not_allowed", "Only DELETE,GET,HEAD,PUT allowed")),
    }
}

fn put(call: &Call<'_>, id: &str) -> Result<Response, Problem> {
    let kind = header(call.request, "content-type").unwrap_or_default();
    if kind.starts_with("multipart/") {
        let reason = "multipart bodies are not supported: send JSON with attachments in base64";
        return Err(Problem::new(415, "bad_content_type", reason));
    }
    check_id(id)?;
    let text =
        std::str::from_utf8(&call.request.body).map_err(|_| Problem::bad("invalid UTF-8 JSON"))?;
    let mut given = read(text)?;
    if given.id.as_ref().is_some_and(|named| named != id) {
        return Err(Problem::bad("Document id must match id in URL"));
    }
    given.rev = named_rev(call, given.rev)?;
    let rev = match call.parameters.get("new_edits") {
        Some("false") => replicate(&call.store, id, &given)?,
        _ => edit(&call.store, id, &given)?,
    };
    let mut response = written(201, id, &rev);
    response.headers.push(("location".into(), format!("/{}/{}", call.store.config.database, id)));
    Ok(response)
}

fn delete(call: &Call<'_>, id: &str) -> Result<Response, Problem> {
    check_id(id)?;
    let rev = named_rev(call, None)?;
    let version = call.store.load(id)?;
    if version.tree().is_empty() {
        return Err(Problem::missing("missing"));
    }
    if version.alive().is_none() && rev.is_none() {
        return Err(Problem::missing("deleted"));
    }
    if rev.is_none() {
        return Err(Problem::conflict());
    }
    let given = Given { rev, deleted: true, body: "{}".into(), ..Given::default() };
    let rev = edit(&call.store, id, &given)?;
    Ok(written(200, id, &rev))
}

fn get(call: &Call<'_>, id: &str) -> Result<Response, Problem> {
    check_id(id)?;
    let version = call.store.load(id)?;
    if version.is_imported {
        // A revision that a client sees must stay.
        call.store.import(id)?;
    }
    let shape = Shape::of(call);
    if let Some(wanted) = call.parameters.get("open_revs") {
        return open_revs(call, &version, wanted, shape);
    }
    let rev = match call.parameters.get("rev") {
        Some(text) => {
            let rev = Rev::parse(text).ok_or_else(|| Problem::bad("Invalid rev format"))?;
            let latest = call.parameters.is("latest");
            let found = version.tree().contains(&rev).then_some(rev);
            let found = found.ok_or_else(|| Problem::missing("missing"))?;
            let leaf = latest.then(|| version.tree().leaves_of(&found).into_iter().next());
            leaf.flatten().unwrap_or(found)
        }
        None => match (version.winner(), version.alive()) {
            (_, Some(alive)) => alive,
            (Some(_), None) => return Err(Problem::missing("deleted")),
            (None, _) => return Err(Problem::missing("missing")),
        },
    };
    let tag = quoted(&rev.to_string());
    let is_plain = shape == Shape::default();
    if is_plain && header(call.request, "if-none-match") == Some(&tag) {
        return Ok(Response {
            status: 304,
            headers: vec![("etag".into(), tag)],
            ..Response::default()
        });
    }
    let text = render(&call.store, &version, &rev, shape)?;
    let mut response = json(200, format!("{text}\n"));
    if is_plain {
        response.headers.push(("etag".into(), tag));
    }
    Ok(response)
}

fn open_revs(
    call: &Call<'_>,
    version: &Version,
    wanted: &str,
    shape: Shape,
) -> Result<Response, Problem> {
    let tree = version.tree();
    let mut rows = Vec::new();
    let row = |rev: &Rev| match render(&call.store, version, rev, shape) {
        Ok(text) => format!("{{\"ok\":{text}}}"),
        Err(_) => format!("{{\"missing\":{}}}", quoted(&rev.to_string())),
    };
    if wanted == "all" {
        if tree.is_empty() {
            return Err(Problem::missing("missing"));
        }
        rows.extend(tree.leaves().iter().map(row));
    } else {
        let wanted: Vec<String> = serde_json::from_str(wanted)
            .map_err(|error| Problem::bad(&format!("invalid_json: open_revs: {error}")))?;
        let mut shown = Vec::new();
        for text in &wanted {
            let rev = Rev::parse(text).ok_or_else(|| Problem::bad("Invalid rev format"))?;
            let revs = match call.parameters.is("latest") && tree.contains(&rev) {
                true => tree.leaves_of(&rev),
                false => vec![rev],
            };
            for rev in revs {
                if !shown.contains(&rev) {
                    rows.push(row(&rev));
                    shown.push(rev);
                }
            }
        }
    }
    Ok(json(200, format!("[{}]\n", rows.join(","))))
}
