package tree

import (
	"net/url"
	"time"
)

// BookmarksParameter is the parameter of a stream with the time between bookmarks, which arrive every second without it.
const BookmarksParameter = "bookmarks"

const (
	// bookmarkInterval is the shortest time between bookmarks, and slowestBookmarks the longest: a client leaves a silent shard.
	bookmarkInterval, slowestBookmarks = time.Second, idleTimeout / 3
	// bookmarksPerSecond is how many bookmarks a client wants of all its shards. Each costs it some 0.1 ms of processor time.
	bookmarksPerSecond = 100
)

// BookmarkInterval returns the time between bookmarks that a client of a number of shards requests.
func BookmarkInterval(shards int) time.Duration {
	return inBounds(time.Duration(shards) * time.Second / bookmarksPerSecond)
}

// bookmarksOf returns the time between bookmarks that a client has requested.
func bookmarksOf(query url.Values) time.Duration {
	requested, err := time.ParseDuration(query.Get(BookmarksParameter))
	if err != nil {
		return bookmarkInterval
	}
	return inBounds(requested)
}

func inBounds(d time.Duration) time.Duration { return min(max(d, bookmarkInterval), slowestBookmarks) }
