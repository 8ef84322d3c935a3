// Notes is a virtual workspace: it serves certain ConfigMaps of all logical clusters as objects of another API, notes.example.org, at
// /services/notes/clusters/<name or *>. Users need RBAC permissions on notes.example.org in the logical cluster, and none on ConfigMaps.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"

	"github.com/kcplane/kcp/server/logicalcluster"
	"github.com/kcplane/kcp/server/virtual"
	"github.com/kcplane/kcp/server/virtual/program"
	"github.com/kcplane/kcp/server/virtual/resources"
)

//go:embed definition.yaml
var definition []byte

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// isNote are the labels of ConfigMaps that contain notes.
var isNote = labels.Set{"example.org/note": "true"}

func main() {
	options := program.NewOptions()
	options.AddFlags(pflag.CommandLine)
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, options); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, options *program.Options) error {
	p, err := program.New(options)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(p.Client)
	if err != nil {
		return err
	}
	api, err := newAPI(client)
	if err != nil {
		return err
	}
	return p.Run(ctx, virtual.Views{
		"notes": func(path string) (virtual.View, string, error) {
			cluster, rest, err := virtual.Cluster(path)
			return view{cluster: cluster, authorizer: p.Authorizer, api: api}, rest, err
		},
	})
}

// view is the view of one logical cluster or all of them.
type view struct {
	cluster    logicalcluster.Cluster
	authorizer authorizer.UnconditionalAuthorizer
	api        http.Handler
}

// Home returns the logical cluster with the permissions of users, whose issuers are trusted.
func (v view) Home() logicalcluster.Name { return v.cluster.Name }

// Authorize uses RBAC in the logical cluster. Requests to all clusters require all permissions in root.
func (v view) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if v.cluster.Wildcard {
		return v.authorizer.Authorize(logicalcluster.WithName(ctx, logicalcluster.Root), authorizer.AttributesRecord{
			User: a.GetUser(), Verb: "*", APIGroup: "*", APIVersion: "*", Resource: "*", ResourceRequest: true,
		})
	}
	return v.authorizer.Authorize(logicalcluster.WithCluster(ctx, v.cluster), a)
}

// Serve serves the logical cluster.
func (v view) Serve(_ http.Handler, w http.ResponseWriter, r *http.Request) {
	v.api.ServeHTTP(w, r.WithContext(logicalcluster.WithCluster(r.Context(), v.cluster)))
}

// newAPI returns a handler for notes, which are ConfigMaps in the logical cluster of the context.
func newAPI(client dynamic.Interface) (http.Handler, error) {
	crd, err := resources.Parse(definition)
	if err != nil {
		return nil, err
	}
	return resources.New(resources.Resource{
		Definition: crd,
		Objects: func(_ context.Context, namespace string) (resources.Objects, error) {
			return resources.Mapped{
				Stored: client.Resource(configMaps).Namespace(namespace), Of: schema.GroupResource{Group: "example.org", Resource: "notes"},
				Selected: isNote, ToServed: noteOf, ToStored: configMapOf,
			}, nil
		},
	})
}

// noteOf converts a ConfigMap to a Note.
func noteOf(configMap *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	data, _, err := unstructured.NestedStringMap(configMap.Object, "data")
	if err != nil {
		return nil, err
	}
	spec := map[string]any{}
	for key, value := range data {
		spec[key] = value
	}
	return formed(configMap, "example.org/v1", "Note", "spec", spec), nil
}

// configMapOf converts a Note to a ConfigMap.
func configMapOf(note *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	data, _, err := unstructured.NestedMap(note.Object, "spec")
	if err != nil {
		return nil, err
	}
	return formed(note, "v1", "ConfigMap", "data", data), nil
}

// formed returns an object with the metadata of another, except managed fields, because its fields are different.
func formed(from *unstructured.Unstructured, apiVersion, kind, field string, content map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "metadata": from.Object["metadata"], field: content,
	}}
	u.SetManagedFields([]metav1.ManagedFieldsEntry(nil))
	return u
}
