"""Searches the data of `cargo xtask demo`: movies by words, with highlights and genres, and airports near a place.

    python app.py --connection couchbase://127.0.0.1 --user Administrator --password password

Each page is one request to the search service.
"""

import argparse
import math
import time
from datetime import timedelta
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlencode, urlsplit

from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.management.search import SearchIndex
from couchbase.options import ClusterOptions, SearchOptions
from couchbase.search import (
    ConjunctionQuery,
    GeoDistanceQuery,
    HighlightStyle,
    MatchQuery,
    SearchRequest,
    SortGeoDistance,
    TermFacet,
    TermQuery,
)

BUCKET, SCOPE = "demo", "vega"
SHOWN = {"type": "text", "analyzer": "keyword", "index": True, "store": True, "docvalues": True}
# The fields of each index. An index has the name of its collection.
FIELDS = {
    "movies": {
        "Title": {"type": "text", "analyzer": "standard", "index": True, "store": True, "include_term_vectors": True},
        "Major Genre": SHOWN,
        "Release Date": SHOWN,
    },
    "airports": {
        "geo": {"type": "geopoint", "index": True},
        "name": SHOWN,
        "city": SHOWN,
    },
}

PAGE = """<!doctype html><meta charset=utf-8><title>Search the demo</title>
<style>body {{ font: 16px/1.6 system-ui; max-width: 42rem; margin: 3rem auto }} mark {{ background: #fd6 }}
small, nav {{ color: #777 }} input {{ font: inherit; width: 14rem }}</style>
<nav><a href="/">Movies</a> · <a href="/airports?lat=40.6&amp;lon=-73.8&amp;km=30">Airports near New York</a></nav>
{body}"""


class Search:
    """The two searches."""

    def __init__(self, connection: str, user: str, password: str) -> None:
        self.cluster = Cluster(connection, ClusterOptions(PasswordAuthenticator(user, password)))
        self.cluster.wait_until_ready(timedelta(seconds=20))
        self.scope = self.cluster.bucket(BUCKET).scope(SCOPE)

    def prepare(self) -> None:
        """Gives each airport a point, and creates the indexes; returns once they have all documents."""
        point = "UPDATE airports SET geo = {'lat': latitude, 'lon': longitude} WHERE geo IS MISSING"
        self.scope.query(point).execute()
        indexes = self.scope.search_indexes()
        for name, fields in FIELDS.items():
            properties = {field: {"fields": [{"name": field, **kind}]} for field, kind in fields.items()}
            params = {
                "doc_config": {"mode": "scope.collection.type_field"},
                "mapping": {
                    "default_mapping": {"enabled": False},
                    "types": {f"{SCOPE}.{name}": {"dynamic": False, "properties": properties}},
                },
            }
            indexes.upsert_index(SearchIndex(name, source_name=BUCKET, uuid="*", params=params))
            (count,) = self.scope.query(f"SELECT RAW COUNT(*) FROM {name}").execute()
            while indexes.get_indexed_documents_count(name) < count:
                time.sleep(0.1)

    def movies(self, text: str, genre: str = "") -> tuple[list[dict], dict[str, int]]:
        """Returns the best movies for some words, with highlighted titles, and the number of all found movies by genre."""
        query = MatchQuery(text, field="Title")
        if genre:
            query = ConjunctionQuery(query, TermQuery(genre, field="Major Genre"))
        options = SearchOptions(
            limit=20,
            fields=["Title", "Release Date"],
            highlight_style=HighlightStyle.Html,
            highlight_fields=["Title"],
            facets={"genres": TermFacet("Major Genre", 20)},
        )
        result = self.scope.search("movies", SearchRequest.create(query), options)
        # The service escapes the text around the marks.
        movies = [{**row.fields, "html": row.fragments["Title"][0]} for row in result.rows()]
        genres = (result.facets() or {}).get("genres")
        return movies, {genre.term: genre.count for genre in genres.terms or []} if genres else {}

    def airports(self, lat: float, lon: float, km: float) -> list[dict]:
        """Returns the airports within a distance of a place, the nearest first."""
        options = SearchOptions(
            limit=100, fields=["name", "city"], sort=[SortGeoDistance((lon, lat), "geo", unit="km")]
        )
        query = GeoDistanceQuery(f"{km}km", (lon, lat), field="geo")
        rows = self.scope.search("airports", SearchRequest.create(query), options).rows()
        return [{"id": row.id, **row.fields} for row in rows]


def distance_km(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Returns the distance of two places, given as latitude and longitude in degrees, on a sphere."""
    (lat_a, lon_a), (lat_b, lon_b) = ([math.radians(degrees) for degrees in place] for place in (a, b))
    chord = math.sin((lat_b - lat_a) / 2) ** 2 + math.cos(lat_a) * math.cos(lat_b) * math.sin((lon_b - lon_a) / 2) ** 2
    return 2 * 6371 * math.asin(math.sqrt(chord))


def movies_page(search: Search, asked: dict[str, str]) -> str:
    text, genre = asked.get("q", ""), asked.get("genre", "")
    body = f'<form><input name=q value="{escape(text)}" placeholder="Words of a title" autofocus></form>'
    if not text:
        return body
    movies, genres = search.movies(text, genre)
    link = '<a href="/?{}">{}</a> <small>{}</small>'
    body += "<p>" + " · ".join(
        link.format(escape(urlencode({"q": text, "genre": name})), escape(name), count) for name, count in genres.items()
    )
    items = (f"<li>{movie['html']} <small>{escape(movie.get('Release Date') or '')}</small>" for movie in movies)
    return body + "<ul>" + "".join(items) + "</ul>"


def airports_page(search: Search, asked: dict[str, str]) -> str:
    lat, lon, km = (float(asked[name]) for name in ("lat", "lon", "km"))
    items = (f"<li>{escape(one['name'])} <small>{escape(one['city'])}</small>" for one in search.airports(lat, lon, km))
    return f"<h1>Within {km:g} km of {lat:g}, {lon:g}</h1><ol>" + "".join(items) + "</ol>"


def serve(search: Search, port: int) -> ThreadingHTTPServer:
    """Returns a server of both pages."""
    pages = {"/": movies_page, "/airports": airports_page}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            page = pages.get(url.path)
            try:
                status, body = (200, page(search, dict(parse_qsl(url.query)))) if page else (404, "Not found")
            except (KeyError, ValueError):
                status, body = 400, "Needs numbers: lat, lon and km"
            content = PAGE.format(body=body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connection", default="couchbase://127.0.0.1")
    parser.add_argument("--user", required=True)
    parser.add_argument("--password", required=True)
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    search = Search(options.connection, options.user, options.password)
    search.prepare()
    print(f"http://127.0.0.1:{options.port}/?q=star")
    serve(search, options.port).serve_forever()


if __name__ == "__main__":
    main()
