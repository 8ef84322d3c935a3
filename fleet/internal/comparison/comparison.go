// Package comparison compares the exported schemas with those of a cluster. The agent runs it in a process of its own, which ends:
// documents of OpenAPI, and the code that understands them, need several times the memory of the agent.
package comparison

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
	"github.com/kcplane/kcp/api/fleet/v1alpha1"
	"github.com/kcplane/kcp/internal/crd/compat"
	"github.com/kcplane/kcp/internal/crd/pull"
	"github.com/kcplane/kcp/internal/crd/snapshot"
)

// The maximum lengths of a path and a message in the status of a Cluster.
const longestField, longestMessage = 512, 1024

// Result of a comparison.
type Result struct {
	Resources []v1alpha1.ClusterResource `json:"resources"`
	// Error says which resources are not known. They are left out.
	Error string `json:"error,omitempty"`
}

// Run compares the schemas in a JSON list with those of a cluster, and writes a Result as JSON.
func Run(ctx context.Context, config *rest.Config, from io.Reader, to io.Writer) error {
	var schemas []apisv1alpha1.APIResourceSchema
	if err := json.NewDecoder(from).Decode(&schemas); err != nil {
		return fmt.Errorf("exported schemas: %w", err)
	}
	result, failed := Result{}, error(nil)
	for i := range schemas {
		compared, err := compare(ctx, config, &schemas[i])
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", schemas[i].Name, err))
			continue
		}
		result.Resources = append(result.Resources, *compared)
	}
	if failed != nil {
		result.Error = failed.Error()
	}
	return json.NewEncoder(to).Encode(result)
}

// compare compares the stored version of one resource. An error means that the result is not known.
func compare(ctx context.Context, config *rest.Config, s *apisv1alpha1.APIResourceSchema) (*v1alpha1.ClusterResource, error) {
	definition, err := snapshot.Definition(s)
	if err != nil {
		return nil, err
	}
	version := storedVersion(s)
	cluster, err := pull.New(config) // one for all would keep each document of OpenAPI in memory: 10 % more, and as slow
	if err != nil {
		return nil, err
	}
	pulled, err := cluster.Pull(ctx, []string{s.Spec.Names.Plural + "." + version + "." + cmp.Or(s.Spec.Group, "core")})
	switch {
	case pull.IsNotServed(err):
		return resultOf(s, []compat.Finding{{Message: "the cluster does not serve version " + version}}, nil), nil
	case err != nil:
		return nil, err
	}
	return compareWith(s, definition, pulled.Definitions[0], version), nil
}

// storedVersion returns the name of the version of a resource that workspaces store.
func storedVersion(s *apisv1alpha1.APIResourceSchema) string {
	for i := range s.Spec.Versions {
		if s.Spec.Versions[i].Storage {
			return s.Spec.Versions[i].Name
		}
	}
	return ""
}

func compareWith(s *apisv1alpha1.APIResourceSchema, exported, served *apiextensionsv1.CustomResourceDefinition, version string,
) *v1alpha1.ClusterResource {
	findings, err := compat.CompareObjects(exported, served, version)
	return resultOf(s, findings, err)
}

// resultOf returns what a Cluster says about a resource.
func resultOf(s *apisv1alpha1.APIResourceSchema, findings []compat.Finding, err error) *v1alpha1.ClusterResource {
	result := &v1alpha1.ClusterResource{
		Group: s.Spec.Group, Resource: s.Spec.Names.Plural, Schema: s.Name, State: v1alpha1.ResourceIncompatible,
	}
	switch {
	case err != nil:
		result.Message = "the schemas cannot be compared: " + err.Error()
	case len(findings) > 0:
		result.Field, result.Message = findings[0].Field, findings[0].Message
	default:
		result.State = v1alpha1.ResourceAccepted
	}
	result.Field = result.Field[:min(len(result.Field), longestField)]
	result.Message = result.Message[:min(len(result.Message), longestMessage)]
	return result
}
