package raw

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// answer is a response of a server.
type answer struct {
	peer   *peer
	code   int
	header http.Header
	// parts are the events of a watch, or a single body.
	parts [][]byte
}

// unlike are headers that differ in every response or with its duration, and those of priority and fairness, which only vanilla sends.
var unlike = []string{"Date", "Content-Length", "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid", "Etag", "Last-Modified", "Process-Start-Time-Unix"}

// lines returns a line for the code, and for each header and each value in the body.
func (a *answer) lines(only string) []string {
	lines := []string{fmt.Sprintf("%d %s", a.code, http.StatusText(a.code))}
	for _, name := range slices.Sorted(maps.Keys(a.header)) {
		if slices.Contains(unlike, name) {
			continue
		}
		for _, value := range a.header[name] {
			lines = append(lines, name+": "+a.peer.normal(value))
		}
	}
	for i, part := range a.parts {
		prefix := ""
		if len(a.parts) > 1 {
			prefix = fmt.Sprintf("event %d: ", i+1)
		}
		value, err := a.decode(part)
		if err != nil {
			value = "cannot be decoded: " + err.Error()
		}
		orderManagers(value)
		if only != "" && a.code < http.StatusMultipleChoices {
			value = find(value, only)
		}
		lines = a.flatten(lines, prefix, "", value)
	}
	return lines
}

// keep stores values of the response as variables.
func (a *answer) keep(paths map[string]string) error {
	for name, path := range paths {
		if len(a.parts) == 0 {
			return fmt.Errorf("the response is empty, and does not contain %s", path)
		}
		value, err := a.decode(a.parts[len(a.parts)-1])
		if err != nil {
			return err
		}
		a.peer.variables[name] = fmt.Sprint(find(value, path))
	}
	return nil
}

// find returns the value at a path: keys with " > " between them. For a list, "*" stands for each item, and another key for the items
// with that label.
func find(value any, path string) any {
	if path == "" {
		return value
	}
	key, rest, _ := strings.Cut(path, " > ")
	switch value := value.(type) {
	case map[string]any:
		return find(value[key], rest)
	case []any:
		found := []any{}
		for i, item := range value {
			if key == "*" || label(i, item) == key {
				found = append(found, find(item, rest))
			}
		}
		return found
	}
	return nil
}

// compiled contains the types that are sent in a binary encoding.
var compiled = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(s))
	metav1.AddToGroupVersion(s, metav1.SchemeGroupVersion)
	utilruntime.Must(metav1.AddMetaToScheme(s))
	utilruntime.Must(apidiscoveryv2.AddToScheme(s))
	return s
}()

// decode returns the value of a body: a string if the body is text.
func (a *answer) decode(part []byte) (any, error) {
	if a.header.Get("Content-Encoding") == "gzip" {
		reader, err := gzip.NewReader(bytes.NewReader(part))
		if err != nil {
			return nil, err
		}
		if part, err = io.ReadAll(reader); err != nil {
			return nil, err
		}
	}
	var value any
	contentType := a.header.Get("Content-Type")
	switch {
	case strings.Contains(contentType, "openapi") && !bytes.HasPrefix(part, []byte("{")):
		return fmt.Sprintf("%.12q and more", part), nil
	case strings.Contains(contentType, "protobuf"):
		object, kind, err := protobuf.NewSerializer(compiled, compiled).Decode(part, nil, nil)
		if err != nil {
			return nil, err
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		content["apiVersion"], content["kind"] = kind.GroupVersion().String(), kind.Kind
		return content, nil
	case strings.Contains(contentType, "cbor"):
		object, _, err := cbor.NewSerializer(scheme.Scheme, scheme.Scheme).Decode(part, nil, nil)
		if err != nil {
			return nil, err
		}
		return runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	case strings.Contains(contentType, "yaml"):
		return value, yaml.Unmarshal(part, &value)
	}
	if err := json.Unmarshal(part, &value); err != nil {
		return string(part), nil
	}
	return value, nil
}

// flatten adds a line for each value below a path.
func (a *answer) flatten(lines []string, prefix, path string, value any) []string {
	switch value := value.(type) {
	case map[string]any:
		if len(value) == 0 {
			return append(lines, prefix+path+" = {}")
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if path == ".metadata" || strings.HasSuffix(path, ".metadata") {
				if annotations, ok := value[key].(map[string]any); ok && key == "annotations" {
					delete(annotations, "kcp.io/cluster")
					if len(annotations) == 0 {
						continue
					}
				}
				if generated, ok := value["generateName"].(string); ok && key == "name" {
					lines = append(lines, prefix+path+".name = "+generated+"<random>")
					continue
				}
			}
			lines = a.flatten(lines, prefix, path+"."+key, value[key])
		}
	case []any:
		if len(value) == 0 {
			return append(lines, prefix+path+" = []")
		}
		for i, item := range value {
			lines = a.flatten(lines, prefix, path+"["+label(i, item)+"]", item)
		}
	case string:
		if strings.HasSuffix(path, "esourceVersion") && value != "" && value != "0" {
			value = "<revision>"
		}
		lines = append(lines, prefix+path+" = "+a.peer.normal(value))
	default:
		lines = append(lines, fmt.Sprintf("%s%s = %v", prefix, path, value))
	}
	return lines
}

// label returns the label of an item of a list: its name if it has one, so that additional items do not change the labels of others.
func label(i int, item any) string {
	if object, ok := item.(map[string]any); ok {
		if metadata, ok := object["metadata"].(map[string]any); ok && metadata["generateName"] == nil {
			if name, ok := metadata["name"].(string); ok {
				return name
			}
		}
		for _, key := range []string{"name", "type", "groupVersion", "version", "manager", "resource"} {
			if name, ok := object[key].(string); ok {
				return name
			}
		}
	}
	return fmt.Sprint(i)
}

// changing matches text that differs between any two responses.
var changing = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uuid>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "<time>"},
	{regexp.MustCompile(`\beyJ[\w-]+\.[\w-]+\.[\w-]+`), "<token>"},
	{regexp.MustCompile(`\beyJ[\w-]{20,}={0,2}`), "<continue>"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "<server>"},
	{regexp.MustCompile(`(resource version|resourceVersion): \d+(, current: \d+| \(\d+\))?`), "$1: <revision>"},
	{regexp.MustCompile(`\b\d+ \(\d+\)`), "<revision> (<revision>)"},
	{regexp.MustCompile(`in (the precondition|record) \(\d+\)`), "in $1 (<revision>)"},
	{regexp.MustCompile(`(resourceVersion\\?":\\?)"\d+`), `$1"<revision>`},
	{regexp.MustCompile(`\\?"annotations\\?":{\\?"kcp.io/cluster\\?":\\?"<cluster>\\?"},`), ""},
	{regexp.MustCompile(`^(localhost|[\d.]+):\d{4,5}$`), "<server>"},
	{regexp.MustCompile(`^(\d+(\.\d+)?(ms|s|m|h|d))+$`), "<age>"},
	{regexp.MustCompile(`hash=[0-9A-F]{128}`), "hash=<hash>"},
}

// normal returns a text without the parts that differ between any two responses.
func (p *peer) normal(text string) string {
	if p.cluster != "" {
		text = strings.ReplaceAll(text, "/clusters/"+p.cluster, "")
		text = strings.ReplaceAll(text, p.cluster, "<cluster>")
	}
	for _, c := range changing {
		text = c.pattern.ReplaceAllString(text, c.by)
	}
	if len(text) > 2000 {
		text = fmt.Sprintf("%s and %d more bytes", text[:200], len(text)-200)
	}
	return strings.ReplaceAll(text, "\n", `\n`)
}
