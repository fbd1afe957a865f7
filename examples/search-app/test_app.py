"""Tests of the example on a node with the data of the demo: each answer is compared with a count of the files.

    NACRE_CONNECTION=couchbase://127.0.0.1 NACRE_USER=Administrator NACRE_PASSWORD=password DEMO_DATA=FOLDER python test_app.py
"""

import csv
import json
import os
import re
import threading
import unittest
from collections import Counter
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from app import Search, distance_km, serve

DATA = Path(os.environ["DEMO_DATA"])
NEW_YORK = (40.6, -73.8)


class AppTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.search = Search(*(os.environ[f"NACRE_{name}"] for name in ("CONNECTION", "USER", "PASSWORD")))
        cls.search.prepare()
        # A second start finds everything in place.
        cls.search.prepare()
        cls.server = serve(cls.search, 0)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.server.shutdown()
        cls.server.server_close()

    def page(self, path: str) -> str:
        with urlopen(f"http://127.0.0.1:{self.server.server_port}{path}") as answer:
            return answer.read().decode()

    def test_movies_are_found_by_words_and_counted_by_genre(self) -> None:
        movies = json.loads((DATA / "movies.json").read_text(encoding="utf-8"))
        stars = [movie for movie in movies if "star" in re.findall(r"\w+", str(movie["Title"]).lower())]
        genres = Counter(movie["Major Genre"] for movie in stars if movie["Major Genre"])
        found, counts = self.search.movies("STAR")
        self.assertEqual((len(found), counts), (20, dict(genres)), "20 movies on a page, and all of them by genre")
        self.assertTrue(all("<mark>Star</mark>" in movie["html"] for movie in found), found)
        dramas, counts = self.search.movies("star", "Drama")
        titles = sorted(movie["Title"] for movie in stars if movie["Major Genre"] == "Drama")
        self.assertEqual((sorted(movie["Title"] for movie in dramas), counts), (titles, {"Drama": len(titles)}))

    def test_airports_are_found_by_distance_the_nearest_first(self) -> None:
        with (DATA / "airports.csv").open(encoding="utf-8") as file:
            places = {f"airport_{row['iata']}": (float(row["latitude"]), float(row["longitude"])) for row in csv.DictReader(file)}
        far = {key: distance_km(NEW_YORK, place) for key, place in places.items()}
        found = [airport["id"] for airport in self.search.airports(*NEW_YORK, 100)]
        self.assertGreater(len(found), 10)
        self.assertEqual(len(found), len(set(found)))
        # The earth is no sphere: both sides differ by less than a percent.
        self.assertLessEqual({key for key, km in far.items() if km < 99}, set(found))
        self.assertLess(max(far[key] for key in found), 101)
        self.assertTrue(all(far[near] < far[next_one] * 1.01 for near, next_one in zip(found, found[1:])), found)

    def test_pages_show_what_was_found_and_escape_what_was_asked(self) -> None:
        page = self.page("/?q=star&genre=Comedy")
        self.assertIn("Dickie Roberts: Former Child <mark>Star</mark>", page)
        self.assertIn('<a href="/?q=star&amp;genre=Comedy">Comedy</a> <small>1</small>', page)
        self.assertIn("&lt;script&gt;", self.page("/?q=%3Cscript%3E"))
        self.assertIn("Kennedy", self.page("/airports?lat=40.6&lon=-73.8&km=30"))
        for path, status in (("/airports?lat=north", 400), ("/other", 404)):
            with self.assertRaises(HTTPError) as refused:
                self.page(path)
            self.assertEqual(refused.exception.code, status)
            refused.exception.close()


if __name__ == "__main__":
    unittest.main()
