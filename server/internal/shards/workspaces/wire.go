package workspaces

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/kcplane/kcp/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcplane/kcp/api/tenancy/v1alpha1"
	"github.com/kcplane/kcp/server/internal/auth/authorization"
	"github.com/kcplane/kcp/server/internal/tenancy/pathindex"
	"github.com/kcplane/kcp/server/internal/tenancy/placement"
	"github.com/kcplane/kcp/server/internal/tenancy/scheduling"
	"github.com/kcplane/kcp/server/logicalcluster"
)

// Names of the calls.
const (
	callCreate = "clusters.create"
	callDelete = "clusters.delete"
	callStates = "clusters.states"
	callReport = "workspaces.report"
	callRecord = "workspaces.record"
	callLocate = "clusters.locate"
)

const (
	// maxCreation is the maximum size of a Creation. Most of it is the creator of the Workspace.
	maxCreation = 256 << 10
	// PageSize is the maximum number of clusters in one call. maxSteps is the maximum number of initializers and of terminators of a cluster,
	// maxMessage that of bytes in the message of a condition.
	PageSize   = 200
	maxSteps   = 1000
	maxMessage = 32 << 10
)

// Owner is the Workspace of a logical cluster.
type Owner struct {
	Cluster logicalcluster.Name `json:"cluster"`
	Name    string              `json:"name"`
	UID     types.UID           `json:"uid"`
}

// Parent is the place of the logical cluster of a Workspace in the tree.
type Parent struct {
	Cluster logicalcluster.Name `json:"cluster"`
	Path    string              `json:"path"`
	// Ancestors are the clusters above it, from the outermost one.
	Ancestors []logicalcluster.Name `json:"ancestors,omitempty"`
}

// step is one step from a cluster to a cluster below it, by the name of the Workspace.
type step struct {
	from, to logicalcluster.Name
	name     string
}

// steps returns the way from the outermost ancestor to the parent.
func (p Parent) steps() (outermost logicalcluster.Name, way []step, err error) {
	chain := append(slices.Clone(p.Ancestors), p.Cluster)
	outermost = chain[0]
	if outermost == logicalcluster.Homes && len(chain) > 1 { // the path begins with the home, whose Workspace has the name of its cluster
		way, chain = append(way, step{from: outermost, to: chain[1], name: string(chain[1])}), chain[1:]
	}
	names := strings.Split(p.Path, ":")
	if len(p.Path) > logicalcluster.MaxPathLength || len(names) < len(chain) {
		return "", nil, fmt.Errorf("path %.100q and %d ancestors of logical cluster %q do not match", p.Path, len(p.Ancestors), p.Cluster)
	}
	names = names[len(names)-len(chain)+1:]
	for i, name := range names {
		way = append(way, step{from: chain[i], to: chain[i+1], name: name})
	}
	return outermost, way, nil
}

// parentOf returns the place of the Workspace of a logical cluster that was created for another shard.
func parentOf(lc *corev1alpha1.LogicalCluster) Parent {
	p := Parent{Cluster: logicalcluster.Name(lc.Spec.Owner.Cluster)}
	p.Path, _ = cutLast(lc.Annotations[corev1alpha1.PathAnnotation])
	all := strings.Split(lc.Annotations[tenancyv1alpha1.AncestorsAnnotation], ",")
	for _, name := range all[:len(all)-1] { // the last one is the parent itself
		p.Ancestors = append(p.Ancestors, logicalcluster.Name(name))
	}
	return p
}

func cutLast(path string) (before, last string) {
	i := strings.LastIndexByte(path, ':')
	if i < 0 {
		return "", path
	}
	return path[:i], path[i+1:]
}

// Creation is what a shard may choose of a logical cluster on another shard. It is closed: it has no other annotations, labels or fields.
type Creation struct {
	Cluster logicalcluster.Name `json:"cluster"`
	Epoch   uint64              `json:"epoch"`
	Parent  Parent              `json:"parent"`
	Name    string              `json:"name"` // of the Workspace
	UID     types.UID           `json:"uid"`  // of the Workspace

	Type           string                                   `json:"type,omitempty"`
	TypeCluster    string                                   `json:"typeCluster,omitempty"`
	RequiredGroups string                                   `json:"requiredGroups,omitempty"`
	CreatedBy      *corev1alpha1.UserInfo                   `json:"createdBy,omitempty"`
	Initializers   []corev1alpha1.LogicalClusterInitializer `json:"initializers,omitempty"`
	Terminators    []corev1alpha1.LogicalClusterTerminator  `json:"terminators,omitempty"`
	// Created is when the Workspace of a home was created, so that all shards show the same age of the home. Others have none.
	Created *metav1.Time `json:"created,omitempty"`
}

// creationOf returns how another shard creates a LogicalCluster.
func creationOf(name logicalcluster.Name, lc *corev1alpha1.LogicalCluster, parent Parent) Creation {
	c := Creation{
		Cluster: name, Epoch: placement.EpochOf(lc.Annotations), Parent: parent, Name: lc.Spec.Owner.Name, UID: lc.Spec.Owner.UID,
		Type: lc.Annotations[tenancyv1alpha1.TypeAnnotation], TypeCluster: lc.Annotations[tenancyv1alpha1.TypeClusterAnnotation],
		RequiredGroups: lc.Annotations[corev1alpha1.RequiredGroupsAnnotation], CreatedBy: lc.Spec.CreatedBy,
		Initializers: lc.Spec.Initializers, Terminators: lc.Spec.Terminators,
	}
	if c.isHome() {
		c.Created = &lc.CreationTimestamp
	}
	return c
}

// stepID matches initializers and terminators, as the definition of LogicalCluster does.
var stepID = regexp.MustCompile(`^([a-z0-9][-a-z0-9]*(:[a-z0-9][-a-z0-9]*)+|system:.+)$`)

// problem returns why a logical cluster cannot be created, or an empty string. Who may create it is another question.
func (c Creation) problem() string {
	text, err := json.Marshal(c)
	switch {
	case err != nil || len(text) > maxCreation:
		return fmt.Sprintf("the description of the logical cluster has more than %d bytes", maxCreation)
	case !scheduling.IsNameFor(c.Parent.Cluster, c.Name, c.Cluster):
		return fmt.Sprintf("%.100q is not the name of a new logical cluster", c.Cluster)
	case c.Epoch == 0:
		return "epoch must be positive"
	case c.UID == "":
		return "uid is required"
	case c.isHome() && (c.CreatedBy == nil || pathindex.HomeCluster(c.CreatedBy.Username) != c.Cluster):
		return fmt.Sprintf("%.100q is not the home of the user who created it", c.Cluster)
	case !logicalcluster.ValidPath(c.path()) || strings.Contains(c.Name, ":"):
		return fmt.Sprintf("%.100q is not the path of a workspace", c.path())
	case len(c.Initializers) > maxSteps || len(c.Terminators) > maxSteps:
		return fmt.Sprintf("more than %d initializers or terminators", maxSteps)
	}
	for _, id := range c.Initializers {
		if !stepID.MatchString(string(id)) {
			return fmt.Sprintf("%.100q is not an initializer", id)
		}
	}
	for _, id := range c.Terminators {
		if !stepID.MatchString(string(id)) {
			return fmt.Sprintf("%.100q is not a terminator", id)
		}
	}
	return ""
}

func (c Creation) isHome() bool { return c.Parent.Cluster == logicalcluster.Homes }

func (c Creation) path() string {
	if c.isHome() {
		return pathindex.HomePath(c.CreatedBy.Username)
	}
	return c.Parent.Path + ":" + c.Name
}

// logicalCluster returns the LogicalCluster, on a shard with an external URL, of a Workspace on the shard owner. Privileged groups of the
// creator are dropped: this shard has not authenticated them.
func (c Creation) logicalCluster(shard, externalURL, owner string) *corev1alpha1.LogicalCluster {
	lc := scheduling.Fresh(shard, externalURL, c.Cluster, c.path())
	lc.Spec = corev1alpha1.LogicalClusterSpec{
		Owner: &corev1alpha1.LogicalClusterOwner{
			APIVersion: tenancyv1alpha1.SchemeGroupVersion.String(), Resource: workspaceResource.Resource, Name: c.Name,
			Cluster: string(c.Parent.Cluster), UID: c.UID,
		},
		CreatedBy: c.CreatedBy, Initializers: c.Initializers, Terminators: c.Terminators,
	}
	if c.CreatedBy != nil {
		by := *c.CreatedBy
		by.Groups = authorization.Unguarded(by.Groups)
		lc.Spec.CreatedBy = &by
	}
	ancestors := make([]string, 0, len(c.Parent.Ancestors)+1)
	for _, name := range append(slices.Clone(c.Parent.Ancestors), c.Parent.Cluster) {
		ancestors = append(ancestors, string(name))
	}
	for key, value := range map[string]string{
		tenancyv1alpha1.AncestorsAnnotation: strings.Join(ancestors, ","), tenancyv1alpha1.OwnerShardAnnotation: owner,
		tenancyv1alpha1.TypeAnnotation: c.Type, tenancyv1alpha1.TypeClusterAnnotation: c.TypeCluster,
		corev1alpha1.RequiredGroupsAnnotation: c.RequiredGroups,
	} {
		if value != "" {
			lc.Annotations[key] = value
		}
	}
	if c.Epoch > 1 {
		lc.Annotations[tenancyv1alpha1.EpochAnnotation] = strconv.FormatUint(c.Epoch, 10)
	}
	scheduling.Begin(lc)
	if c.isHome() && c.Created != nil {
		lc.CreationTimestamp = *c.Created
	}
	return lc
}

// Existence is whether a shard has a logical cluster.
type Existence string

const (
	// Exists is a logical cluster that its shard has, also while it is deleted.
	Exists Existence = ""
	// Deleted is one that its shard has deleted, or will never create.
	Deleted Existence = "Deleted"
	// Missing is one that its shard does not have, for another reason. It is no reason to delete anything.
	Missing Existence = "Missing"
	// Moved is one that has moved to another shard, which knows more. Only a Deletion that follows gets this answer.
	Moved Existence = "Moved"
)

// State is what a Workspace shows of its logical cluster on another shard.
type State struct {
	Existence Existence           `json:"existence,omitempty"`
	Owner     Owner               `json:"owner"`
	Cluster   logicalcluster.Name `json:"cluster"`
	Epoch     uint64              `json:"epoch"`
	UID       types.UID           `json:"uid,omitempty"`
	// To is the shard of what is Moved.
	To string `json:"to,omitempty"`

	Deleting     bool                                     `json:"deleting,omitempty"`
	Phase        corev1alpha1.LogicalClusterPhase         `json:"phase,omitempty"`
	Initializers []corev1alpha1.LogicalClusterInitializer `json:"initializers,omitempty"`
	Terminators  []corev1alpha1.LogicalClusterTerminator  `json:"terminators,omitempty"`
	// Content is the condition WorkspaceContentDeleted.
	Content *corev1alpha1.Condition `json:"content,omitempty"`
}

// StateOf returns the state of a logical cluster that has an owner.
func StateOf(lc *corev1alpha1.LogicalCluster) State {
	s := State{
		Owner:   Owner{Cluster: logicalcluster.Name(lc.Spec.Owner.Cluster), Name: lc.Spec.Owner.Name, UID: lc.Spec.Owner.UID},
		Cluster: logicalcluster.Of(lc), Epoch: placement.EpochOf(lc.Annotations), UID: lc.UID, Deleting: lc.DeletionTimestamp != nil,
		Phase: lc.Status.Phase, Initializers: lc.Status.Initializers, Terminators: lc.Status.Terminators,
	}
	if s.Deleting {
		for _, c := range lc.Status.Conditions {
			if c.Type == tenancyv1alpha1.WorkspaceContentDeleted {
				s.Content = &c
			}
		}
	}
	return s
}

// logicalCluster returns a LogicalCluster with what the state says, nil if there is none. Its strings are bounded.
func (s State) logicalCluster() *corev1alpha1.LogicalCluster {
	if s.Existence != Exists {
		return nil
	}
	lc := &corev1alpha1.LogicalCluster{}
	lc.UID = s.UID
	lc.Status.Phase = s.Phase
	lc.Status.Initializers, lc.Status.Terminators = s.Initializers, s.Terminators
	if s.Content != nil {
		c := corev1alpha1.Condition{Type: tenancyv1alpha1.WorkspaceContentDeleted, Status: s.Content.Status, Severity: s.Content.Severity,
			Reason: s.Content.Reason, Message: s.Content.Message}
		lc.Status.Conditions = []corev1alpha1.Condition{c}
	}
	return lc
}

// problem returns why a state cannot be shown, or an empty string.
func (s State) problem() string {
	switch {
	case len(s.Initializers) > maxSteps || len(s.Terminators) > maxSteps:
		return fmt.Sprintf("more than %d initializers or terminators", maxSteps)
	case s.Content != nil && max(len(s.Content.Message), len(s.Content.Reason)) > maxMessage:
		return fmt.Sprintf("a condition has more than %d bytes", maxMessage)
	case !phases[cmp.Or(s.Phase, corev1alpha1.LogicalClusterPhaseScheduling)]:
		return fmt.Sprintf("unknown phase %.100q", s.Phase)
	}
	for _, id := range s.Initializers {
		if !stepID.MatchString(string(id)) || len(id) > logicalcluster.MaxPathLength {
			return fmt.Sprintf("%.100q is not an initializer", id)
		}
	}
	for _, id := range s.Terminators {
		if !stepID.MatchString(string(id)) || len(id) > logicalcluster.MaxPathLength {
			return fmt.Sprintf("%.100q is not a terminator", id)
		}
	}
	return ""
}

var phases = map[corev1alpha1.LogicalClusterPhase]bool{
	corev1alpha1.LogicalClusterPhaseScheduling: true, corev1alpha1.LogicalClusterPhaseInitializing: true,
	corev1alpha1.LogicalClusterPhaseReady: true, corev1alpha1.LogicalClusterPhaseInactive: true,
	corev1alpha1.LogicalClusterPhaseTerminating: true, corev1alpha1.LogicalClusterPhaseDeleting: true,
	corev1alpha1.LogicalClusterPhaseUnavailable: true,
}

// Deletion is the request to delete the logical cluster of a Workspace.
type Deletion struct {
	Cluster logicalcluster.Name `json:"cluster"`
	Parent  Parent              `json:"parent"`
	Name    string              `json:"name"` // of the Workspace
	UID     types.UID           `json:"uid"`  // of the Workspace
	// Follows is set by callers that know Moved. Others get an error instead.
	Follows bool `json:"follows,omitempty"`
}

// Reference is a logical cluster and its owner.
type Reference struct {
	Cluster logicalcluster.Name `json:"cluster"`
	Owner   Owner               `json:"owner"`
}

// page is what calls for several clusters send and receive.
type (
	references struct {
		Items []Reference `json:"items"`
	}
	states struct {
		Items []State `json:"items"`
	}
	verdicts struct {
		Items []Verdict `json:"items"`
	}
)

// Verdict is what the shard of a Workspace says about a reported state.
type Verdict string

const (
	// Accepted means that the Workspace shows the state.
	Accepted Verdict = "Accepted"
	// Orphan means that the shard holds the parent, and there is no Workspace with the UID.
	Orphan Verdict = "Orphan"
	// NotHeld means that the shard does not hold the parent.
	NotHeld Verdict = "NotHeld"
	// Refused means that the record of the Workspace names another place, or the state is invalid.
	Refused Verdict = "Refused"
	// Failed means that it must be reported again.
	Failed Verdict = "Failed"
)

// question is the request for the record of a Workspace.
type question struct {
	Parent  logicalcluster.Name `json:"parent"`
	Name    string              `json:"name"`
	Cluster logicalcluster.Name `json:"cluster"`
}

type record struct {
	Shard string `json:"shard"`
}
