package raw

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// exchange is one request, in the format of the files in testdata:
//
//	### creating a ConfigMap
//	# as alice
//	POST /api/v1/namespaces/raw/configmaps
//	Content-Type: application/json
//
//	{"metadata": {"name": "a"}}
type exchange struct {
	// name is unique.
	name         string
	method, path string
	header       http.Header
	body         string

	// as is the name of a user, by default "masters".
	as string
	// encode is the encoding in which the body, which is JSON, is sent.
	encode string
	// keep are paths of the response whose values become variables for later requests.
	keep map[string]string
	// only is the path of the compared part of the response, by default all of it.
	only string
	// await is a text: the request is repeated until the response contains it.
	await string
	// events is the number of events after which the client ends a watch.
	events int
	// differs is the reason why the responses differ.
	differs string
}

// chapter is a file of testdata.
type chapter struct {
	title     string
	exchanges []*exchange
}

// chapters returns all files of testdata, in their order.
func chapters(t *testing.T) []chapter {
	t.Helper()
	files, err := filepath.Glob("testdata/*.http")
	if err != nil {
		t.Fatal(err)
	}
	var all []chapter
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c, err := parse(string(content))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, c)
	}
	return all
}

// parse reads a file of requests. Lines "@name = text" before the first request define reasons that several requests share.
func parse(content string) (chapter, error) {
	head, rest, _ := strings.Cut(content, "\n### ")
	c := chapter{}
	shared := map[string]string{}
	for line := range strings.Lines(head) {
		line = strings.TrimSpace(line)
		if name, text, found := strings.Cut(line, " = "); found && strings.HasPrefix(name, "@") {
			shared[name[1:]] = text
		} else if title, found := strings.CutPrefix(line, "# "); found {
			c.title = title
		}
	}
	for block := range strings.SplitSeq(rest, "\n### ") {
		e, err := parseExchange(block)
		if err != nil {
			return c, fmt.Errorf("%.60q: %w", block, err)
		}
		if text, found := shared[e.differs]; found {
			e.differs = text
		} else if e.differs != "" && !strings.Contains(e.differs, " ") {
			return c, fmt.Errorf("%s: unknown reason @%s", e.name, e.differs)
		}
		c.exchanges = append(c.exchanges, e)
	}
	return c, nil
}

func parseExchange(block string) (*exchange, error) {
	head, body, _ := strings.Cut(block, "\n\n")
	name, head, _ := strings.Cut(head, "\n")
	e := &exchange{name: strings.TrimSpace(name), as: "masters", header: http.Header{}, keep: map[string]string{}, body: strings.TrimRight(body, "\n")}
	lines := bufio.NewScanner(strings.NewReader(head))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if directive, found := strings.CutPrefix(line, "# "); found {
			if err := e.direct(directive); err != nil {
				return nil, err
			}
		} else if e.method == "" {
			var found bool
			if e.method, e.path, found = strings.Cut(line, " "); !found {
				return nil, fmt.Errorf("%q is not a method and a path", line)
			}
		} else if key, value, found := strings.Cut(line, ": "); found {
			e.header.Add(key, value)
		} else {
			return nil, fmt.Errorf("%q is not a header", line)
		}
	}
	if e.path == "" {
		return nil, fmt.Errorf("the request has no path")
	}
	if e.body != "" && e.header.Get("Content-Type") == "" {
		e.header.Set("Content-Type", "application/json")
	}
	return e, nil
}

func (e *exchange) direct(directive string) (err error) {
	verb, rest, _ := strings.Cut(directive, " ")
	switch verb {
	case "as":
		e.as = rest
	case "encode":
		e.encode = rest
	case "keep":
		name, path, _ := strings.Cut(rest, " ")
		e.keep[name] = path
	case "only":
		e.only = rest
	case "await":
		e.await = rest
	case "events":
		e.events, err = strconv.Atoi(rest)
	case "differs":
		e.differs = rest
	default:
		return fmt.Errorf("unknown directive %q", directive)
	}
	return err
}
