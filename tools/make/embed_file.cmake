# Writes the bytes of INPUT as C++ to OUTPUT: cmake -DINPUT= -DOUTPUT= -DHEADER= -DSYMBOL= -P this
file(READ ${INPUT} hex HEX)
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE ${OUTPUT} "#include \"${HEADER}\"

namespace lmdbio::tools {

const unsigned char k${SYMBOL}[] = {
${bytes}
};
const size_t k${SYMBOL}Bytes = sizeof(k${SYMBOL});

}  // namespace lmdbio::tools
")
