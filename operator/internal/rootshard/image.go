package rootshard

import (
	"cmp"
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/internal/conditions"
	"github.com/kcplane/kcp/operator/internal/shard"
	"github.com/kcplane/kcp/operator/internal/workload"
)

// image is the one that the spec names; or the one that pods were ready with, if the spec does not name another repository or another
// version; or else the default.
func image(spec *v1alpha1.ImageSpec, ran, standard string) string {
	repository, release := cutVersion(standard)
	if spec == nil {
		spec = &v1alpha1.ImageSpec{}
	}
	named := ""
	switch {
	case spec.Digest != "":
		named = "@" + spec.Digest
	case spec.Tag != "":
		named = ":" + spec.Tag
	}
	before, runs := cutVersion(ran)
	switch {
	case ran != "" && (spec.Repository == "" || spec.Repository == before) && (named == "" || named == runs):
		return ran
	case spec.Repository != "":
		repository = spec.Repository
	}
	if named == "" {
		named = release
	}
	return repository + named
}

// cutVersion splits an image into its repository, and :tag or @digest. A colon before the last slash is that of a port.
func cutVersion(image string) (repository, version string) {
	if i := strings.IndexByte(image, '@'); i >= 0 {
		return image[:i], image[i:]
	}
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[:i], image[i:]
	}
	return image, ""
}

// imageOf returns the image of a container, if there is such a one.
func imageOf(pod corev1.PodSpec, container string) string {
	for _, c := range pod.Containers {
		if c.Name == container {
			return c.Image
		}
	}
	return ""
}

// versionOf returns the version that the tag of an image tells, or nil.
func versionOf(image string) *version.Version {
	_, tag := cutVersion(image)
	v, err := version.ParseSemantic(strings.TrimPrefix(tag, ":"))
	if err != nil {
		return nil
	}
	return v
}

// shownVersion returns what people call the version of an image: its tag, or the beginning of its digest.
func shownVersion(image string) string {
	_, version := cutVersion(image)
	if digest, ok := strings.CutPrefix(version, "@"); ok {
		const shown = len("sha256:") + 12
		return digest[:min(len(digest), shown)]
	}
	return strings.TrimPrefix(version, ":")
}

// checkVersion refuses an image of a version that may not understand what is stored: one before that which has run, or further on
// than the next minor one. Of images that do not tell their version nothing is known.
func checkVersion(rs *v1alpha1.RootShard, image string) error {
	runs, wanted := versionOf(":"+rs.Status.Version), versionOf(image)
	if runs == nil || wanted == nil || runs.Major() == wanted.Major() && (wanted.Minor() == runs.Minor() || wanted.Minor() == runs.Minor()+1) {
		return nil
	}
	_, tag := cutVersion(image)
	if tag = tag[1:]; rs.Annotations[v1alpha1.AllowVersionAnnotation] == tag {
		return nil
	}
	return conditions.Stall("VersionRefused", "spec.image: kcp %s has run; only the next minor version is allowed, not %s: "+
		"set another, or allow it with the annotation %s: %s", rs.Status.Version, tag, v1alpha1.AllowVersionAnnotation, tag)
}

// imageAnnotation of a StatefulSet has the image that a pod was ready with, for when the status of the RootShard is lost.
const imageAnnotation = "operator.kcp.io/image"

// record keeps the image that the pods are to have, and its version, as soon as a pod is ready with it, and may have stored something. An
// image that no pod was ever ready with is forgotten when the spec names it no longer.
func (s *scope) record(ctx context.Context, set *appsv1.StatefulSet) {
	status := &s.rs.Status
	status.Image = cmp.Or(status.Image, set.Annotations[imageAnnotation])
	wanted := imageOf(set.Spec.Template.Spec, shard.Container)
	if status.Image != "" && wanted != image(s.rs.Spec.Image, status.Image, s.DefaultImage) {
		return // somebody else has changed the StatefulSet, or the spec has changed since
	}
	version := shownVersion(wanted)
	if wanted == "" || wanted == status.Image && version == status.Version {
		return
	}
	pods, err := s.podsOf(ctx)
	if err != nil {
		return // it is found out the next time
	}
	for _, pod := range pods {
		if workload.Ready(&pod) && imageOf(pod.Spec, shard.Container) == wanted {
			status.Image, status.Version = wanted, version
		}
	}
}
