package endpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	apisv1alpha2 "github.com/kcplane/kcp/api/apis/v1alpha2"
	"github.com/kcplane/kcp/server/internal/process/fairqueue"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// This file reads endpoint slices of providers on other shards. Shards do not offer objects of any kind to each other, so this shard asks
// the one that holds the provider. Only workspaces that the administrator lists in Allowed cause questions.

// CallSlice is the name of the peer call by which the shard that holds a logical cluster returns an endpoint slice there.
const CallSlice = "endpoints.slice"

const (
	// answerLife is how long the answer of a shard counts, maxAnswers how many are in memory, and maxWait the time of a question.
	answerLife = 5 * time.Second
	maxAnswers = 1024
	maxWait    = 5 * time.Second
	// maxEndpoints is the number of endpoints of a slice that are used, and maxAnswerBytes the size of an answer of another shard.
	maxEndpoints   = 64
	maxAnswerBytes = 32 << 10
	// pollInterval is how often requests that last ask whether a slice of another shard has changed. They end after maxFailures errors in
	// a row.
	pollInterval = 10 * time.Second
	maxFailures  = 6
)

// Elsewhere reads endpoint slices in logical clusters of other shards.
type Elsewhere struct {
	// Shard is the name of this shard.
	Shard string
	// Holder returns the shard that holds a logical cluster.
	Holder func(logicalcluster.Name) (shard string, epoch uint64, known bool)
	// Holds reports whether this shard has a logical cluster.
	Holds func(logicalcluster.Name) bool
	// Find returns the shard that holds a cluster that Holder does not know, and an empty name if no shard does.
	Find func(ctx context.Context, cluster logicalcluster.Name) (shard string, err error)
	// Ask sends CallSlice to another shard.
	Ask func(ctx context.Context, shard string, q Question) (Answer, error)
}

// Question names an endpoint slice.
type Question struct {
	Cluster logicalcluster.Name              `json:"cluster"`
	Slice   corev1.TypedLocalObjectReference `json:"slice"`
}

// String is unique to the question: the parts are names, which have no slashes.
func (q Question) String() string {
	return fmt.Sprintf("%s/%s/%s/%s", q.Cluster, ptr.Deref(q.Slice.APIGroup, ""), q.Slice.Kind, q.Slice.Name)
}

// Answer is what an endpoint slice says.
type Answer struct {
	// Version is another one after each change of the slice, and empty if the slice does not exist.
	Version   string     `json:"version,omitempty"`
	Endpoints []endpoint `json:"endpoints,omitempty"`
	// Invalid means that the reference cannot name an endpoint slice, because of its kind.
	Invalid bool `json:"invalid,omitempty"`
	// Malformed is why the status of the slice cannot be decoded. It contains nothing from the slice but types.
	Malformed string `json:"malformed,omitempty"`
}

// Slice answers a question of another shard about a logical cluster of this shard. It returns only slices that an export there refers to.
func (e *Endpoints) Slice(ctx context.Context, q Question) (Answer, error) {
	all, err := e.config.Exports(q.Cluster)
	if err != nil || !slices.ContainsFunc(all, func(export *apisv1alpha2.APIExport) bool { return refers(export, q.Slice) }) {
		return Answer{}, err
	}
	return e.stored(ctx, q)
}

// refers reports whether a resource of an export has the virtual storage of an endpoint slice.
func refers(export *apisv1alpha2.APIExport, slice corev1.TypedLocalObjectReference) bool {
	return slices.ContainsFunc(export.Spec.Resources, func(r apisv1alpha2.ResourceSchema) bool {
		if r.Storage.Virtual == nil {
			return false
		}
		own := r.Storage.Virtual.Reference
		return ptr.Deref(own.APIGroup, "") == ptr.Deref(slice.APIGroup, "") && own.Kind == slice.Kind && own.Name == slice.Name
	})
}

// stored returns an endpoint slice of this shard.
func (e *Endpoints) stored(ctx context.Context, q Question) (Answer, error) {
	ctx, stored, err := e.slice(ctx, q.Cluster, q.Slice)
	if invalid := invalidReference(""); errors.As(err, &invalid) {
		return Answer{Invalid: true}, nil
	}
	if err != nil {
		return Answer{}, err
	}
	obj, err := stored.Get(ctx, q.Slice.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Answer{}, nil
	}
	if err != nil {
		return Answer{}, err
	}
	answer := Answer{Version: string(obj.GetUID()) + "/" + obj.GetResourceVersion()}
	var status struct {
		Endpoints []endpoint `json:"endpoints"`
	}
	content, isObject := obj.Object["status"].(map[string]any)
	if _, exists := obj.Object["status"]; exists && !isObject {
		answer.Malformed = "it is not an object"
		return answer, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &status); err != nil {
		answer.Malformed = err.Error()
		return answer, nil
	}
	answer.Endpoints = status.Endpoints[:min(len(status.Endpoints), maxEndpoints)]
	return answer, nil
}

// read returns an endpoint slice, also one on another shard. The error is for consumers.
func (e *Endpoints) read(ctx context.Context, q Question) (Answer, error) {
	shard, err := e.holder(ctx, q.Cluster)
	if err != nil {
		return Answer{}, err
	}
	var answer Answer
	if shard != "" {
		answer, err = e.ask(ctx, shard, q)
	} else {
		answer, err = e.stored(ctx, q)
	}
	if answer.Invalid {
		err = invalidReference(q.Slice.Kind)
	}
	if err == nil && answer.Malformed != "" {
		err = fmt.Errorf("the status of its virtual storage, %s %s, cannot be decoded: %s", q.Slice.Kind, q.Slice.Name, answer.Malformed)
	}
	return answer, err
}

// holder returns the other shard that holds a logical cluster, and an empty name if this shard does, or if no URL is allowed for it.
func (e *Endpoints) holder(ctx context.Context, cluster logicalcluster.Name) (string, error) {
	c := e.config.Elsewhere
	if c == nil || !e.mayPermit(cluster) {
		return "", nil
	}
	shard, _, known := c.Holder(cluster)
	if !known {
		if c.Holds(cluster) || cluster.IsSystem() {
			return "", nil
		}
		var err error
		if shard, err = c.Find(ctx, cluster); err != nil {
			return "", err
		}
	}
	if shard == c.Shard {
		shard = ""
	}
	return shard, nil
}

// ask returns an endpoint slice of another shard. Requests at the same time share a question, which does not end with them.
func (e *Endpoints) ask(ctx context.Context, shard string, q Question) (Answer, error) {
	key := shard + "/" + q.String()
	if found, ok := e.answers.Get(key); ok {
		return found.(Answer), nil
	}
	defer fairqueue.From(ctx).Stand()() // the request waits for another shard
	asked := e.asking.Join(key, func() (Answer, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxWait)
		defer cancel()
		answer, err := e.config.Elsewhere.Ask(ctx, shard, q)
		if err == nil {
			err = answer.check()
		}
		if err != nil {
			return Answer{}, fmt.Errorf("asking shard %s for %s %s of the provider: %w: retry the request", shard, q.Slice.Kind, q.Slice.Name, err)
		}
		e.answers.Add(key, answer, answerLife)
		return answer, nil
	})
	select {
	case <-asked.Done:
		return asked.Value, asked.Err
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
}

// check returns an error for an answer that is too large for the memory of this shard.
func (a Answer) check() error {
	if len(a.Endpoints) > maxEndpoints {
		return fmt.Errorf("the answer has %d endpoints, and %d are allowed", len(a.Endpoints), maxEndpoints)
	}
	encoded, err := json.Marshal(a)
	if err == nil && len(encoded) > maxAnswerBytes {
		err = fmt.Errorf("the answer has %d bytes, and %d are allowed", len(encoded), maxAnswerBytes)
	}
	return err
}

// changedElsewhere is Changed for an endpoint slice of another shard. It asks again now and then, until ctx ends, or that shard does not
// answer maxFailures times in a row.
func (e *Endpoints) changedElsewhere(ctx context.Context, q Question) (<-chan struct{}, error) {
	first, err := e.read(ctx, q)
	if err != nil {
		return nil, err
	}
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		ticker := time.NewTicker(e.poll)
		defer ticker.Stop()
		for failures := 0; failures < maxFailures; {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			now, err := e.read(ctx, q)
			switch {
			case err != nil:
				failures++
			case now.Version != first.Version:
				return
			default:
				failures = 0
			}
		}
	}()
	return changed, nil
}
