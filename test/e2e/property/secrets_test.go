package property

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// A marker is a unique prefix and hexadecimal digits that are a secret of one tenant, or of the tenants that share a schema. Because of
// its length, its base64 form is unique in any text that starts with it.
const (
	markerPrefix = "kcpmark-"
	markerDigits = 16
	markerLength = len(markerPrefix) + markerDigits
)

// namePrefix is the prefix of the names of clusters that kcptest creates; nameDigits is the number of digits that follow.
const (
	namePrefix = "test"
	nameDigits = 8
)

const uidLength = len("00000000-0000-0000-0000-000000000000")

// secrets finds data of other tenants in responses: markers, names of clusters, and UIDs of objects.
type secrets struct {
	names sync.Map // of clusters
	uids  sync.Map // of objects → name of the first cluster that returned them
}

// reader is the recipient of a response.
type reader struct {
	cluster string
	markers []string // that may be seen
	knows   []string // names of other clusters that the request contains
}

// foreign returns the data of other clusters in a response.
func (s *secrets) foreign(to reader, header http.Header, body []byte) []string {
	var found []string
	for name, values := range header {
		for _, value := range values {
			if name != "Audit-Id" && name != "Date" {
				found = append(found, s.inText(to, []byte(name+": "+value))...)
			}
		}
	}
	return append(found, s.inText(to, body)...)
}

func (s *secrets) inText(to reader, text []byte) []string {
	var found []string
	for _, marker := range markersIn(text) {
		if !contains(to.markers, marker) {
			found = append(found, "the marker "+marker)
		}
	}
	occurrences(text, namePrefix, func(i int) {
		name := token(text[i:], len(namePrefix), nameDigits)
		if _, known := s.names.Load(name); known && name != to.cluster && !contains(to.knows, name) {
			found = append(found, "the name of the cluster "+name)
		}
	})
	const field = `"uid":"`
	occurrences(text, field, func(i int) {
		rest := text[i+len(field):]
		if len(rest) <= uidLength || rest[uidLength] != '"' {
			return
		}
		uid := string(rest[:uidLength])
		if owner, _ := s.uids.LoadOrStore(uid, to.cluster); owner != to.cluster && !contains(to.knows, owner.(string)) {
			found = append(found, fmt.Sprintf("the UID %s of an object of the cluster %s", uid, owner))
		}
	})
	return found
}

// markersIn returns the markers in a text, both plain and in base64.
func markersIn(text []byte) []string {
	var markers []string
	occurrences(text, markerPrefix, func(i int) {
		if marker := token(text[i:], len(markerPrefix), markerDigits); marker != "" {
			markers = append(markers, marker)
		}
	})
	encoded := base64.StdEncoding.EncodeToString([]byte(markerPrefix[:len(markerPrefix)/3*3]))
	occurrences(text, encoded, func(i int) {
		end := min(len(text), i+base64.StdEncoding.EncodedLen(markerLength))
		if decoded, err := base64.StdEncoding.DecodeString(string(text[i:end])); err == nil {
			if marker := token(decoded, len(markerPrefix), markerDigits); marker != "" {
				markers = append(markers, marker)
			}
		}
	})
	return markers
}

// token returns the first prefix+digits bytes of text, or "" if the prefix is not followed by that many digits.
func token(text []byte, prefix, digits int) string {
	if len(text) < prefix+digits || strings.Trim(string(text[prefix:prefix+digits]), "0123456789abcdef") != "" {
		return ""
	}
	return string(text[:prefix+digits])
}

func occurrences(text []byte, of string, at func(int)) {
	for from := 0; ; {
		i := bytes.Index(text[from:], []byte(of))
		if i < 0 {
			return
		}
		at(from + i)
		from += i + len(of)
	}
}

func contains(all []string, one string) bool {
	for _, s := range all {
		if s == one {
			return true
		}
	}
	return false
}
