package kcpaccess

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const (
	// unschedulableAnnotation of a Shard in kcp excludes it from the scheduling of workspaces. The value is who set it.
	unschedulableAnnotation = "experimental.core.kcp.io/unschedulable"
	// by is the value of annotations of the operator. It does not change those of others.
	by = "kcp-operator"
	// LoseAnnotation allows the removal of a Shard that holds logical clusters, which are lost.
	LoseAnnotation = "core.kcp.io/delete-with-placements"
)

// Registered is the Shard object of a shard in kcp.
type Registered struct {
	// BaseURL is the URL of the shard for other shards.
	BaseURL string
	// LogicalClusters is the number of logical clusters that the shard holds.
	LogicalClusters int64
	// Responds reports whether the root shard reaches the shard. If not, Message says why.
	Responds bool
	Message  string
	// Cordoned reports whether the operator has stopped the scheduling of workspaces to the shard.
	Cordoned bool
}

// Registry reads and writes the Shard objects in kcp, which are in the workspace root, at the root shard.
type Registry struct{}

// object is the part of a Shard object in kcp that the operator reads.
type object struct {
	Metadata struct{ Annotations map[string]string }
	Spec     struct{ BaseURL string }
	Status   struct {
		Used       map[string]resource.Quantity
		Conditions []struct{ Type, Status, Message string }
	}
}

// Shard returns the Shard object of a name.
func (Registry) Shard(ctx context.Context, credentials Credentials, name string) (Registered, error) {
	o := object{}
	if err := call(ctx, credentials, http.MethodGet, name, nil, &o); err != nil {
		return Registered{}, err
	}
	used := o.Status.Used["logicalclusters"]
	found := Registered{BaseURL: o.Spec.BaseURL, LogicalClusters: used.Value(),
		Cordoned: o.Metadata.Annotations[unschedulableAnnotation] == by, Message: "the root shard has not reached it yet"}
	for _, c := range o.Status.Conditions {
		if c.Type == "Ready" {
			found.Responds, found.Message = c.Status == string(metav1.ConditionTrue), c.Message
		}
	}
	return found, nil
}

// Cordon stops the scheduling of workspaces to a shard, or starts it again. If another client has stopped it, nothing changes.
func (Registry) Cordon(ctx context.Context, credentials Credentials, name string, cordoned bool) error {
	o := object{}
	if err := call(ctx, credentials, http.MethodGet, name, nil, &o); err != nil {
		return err
	}
	if value, set := o.Metadata.Annotations[unschedulableAnnotation]; set == cordoned || set && value != by {
		return nil
	}
	value := any(nil)
	if cordoned {
		value = by
	}
	return annotate(ctx, credentials, name, unschedulableAnnotation, value)
}

// Remove deletes the Shard object of a name. kcp refuses this while the shard holds logical clusters, unless these may be lost.
func (Registry) Remove(ctx context.Context, credentials Credentials, name string, lose bool) error {
	if lose {
		if err := annotate(ctx, credentials, name, LoseAnnotation, "true"); err != nil {
			return err
		}
	}
	return call(ctx, credentials, http.MethodDelete, name, nil, nil)
}

func annotate(ctx context.Context, credentials Credentials, name, key string, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	if err != nil {
		return err
	}
	return call(ctx, credentials, http.MethodPatch, name, patch, nil)
}

// call sends a request for a Shard object.
func call(ctx context.Context, credentials Credentials, method, name string, body []byte, into any) error {
	if err := callRoot(ctx, credentials, method, "core.kcp.io/v1alpha1/shards/"+name, body, into); err != nil {
		return fmt.Errorf("shard %s in kcp: %w", name, err)
	}
	return nil
}

// callRoot sends a request for an API of the workspace root.
func callRoot(ctx context.Context, credentials Credentials, method, path string, body []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, err := rest.HTTPClientFor(&rest.Config{UserAgent: by, TLSClientConfig: rest.TLSClientConfig{
		CertData: credentials.Certificate, KeyData: credentials.CertificateKey, CAData: credentials.Authorities,
	}})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, credentials.URL+"/clusters/root/apis/"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	switch method {
	case http.MethodPatch:
		request.Header.Set("Content-Type", "application/merge-patch+json")
	case http.MethodPost:
		request.Header.Set("Content-Type", "application/json")
	}
	return send(client, request, into)
}
